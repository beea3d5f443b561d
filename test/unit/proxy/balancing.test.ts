import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { HeaderList } from '../../../src/http/header-list.ts';
import { Secret } from '../../../src/kernel/secret.ts';
import { parseUpstream } from '../../../src/proxy/address.ts';
import { createBalance } from '../../../src/proxy/balancing.ts';
import { Upstream } from '../../../src/proxy/upstreams.ts';
import { ask1 } from '../http/exchange-server.ts';
import { fakeExchange } from '../http/fake-exchange.ts';
import { origin, proxyTo } from './gateway.ts';
import type { BalancingPolicy } from '../../../src/proxy/proxy-config.ts';

const upstreams = (count: number): Upstream[] =>
  Array.from({ length: count }, (_, i) => new Upstream(parseUpstream(`http://10.0.0.${i + 1}:80`)));

const names = (policy: BalancingPolicy, among: Upstream[], turns: number): string[] => {
  const balance = createBalance(policy, () => 0.5);
  return Array.from({ length: turns }, () =>
    String(balance(fakeExchange({}), among)?.upstream.address.hostport),
  );
};

describe('lb_policy', () => {
  const [a, b, c] = upstreams(3);
  assert.ok(a && b && c);

  it('chooses nothing if no upstream is available', () => {
    for (const kind of ['random', 'first', 'round_robin', 'least_conn', 'ip_hash'] as const) {
      assert.equal(createBalance({ kind }, () => 0.9)(fakeExchange({}), []), undefined, kind);
    }
  });

  it('first takes the first available one', () => {
    assert.deepEqual(names({ kind: 'first' }, [b, c], 2), ['10.0.0.2:80', '10.0.0.2:80']);
  });

  it('round_robin takes turns', () => {
    assert.deepEqual(names({ kind: 'round_robin' }, [a, b, c], 4), [
      '10.0.0.1:80',
      '10.0.0.2:80',
      '10.0.0.3:80',
      '10.0.0.1:80',
    ]);
  });

  it('weighted_round_robin takes turns by weight, spread out', () => {
    const policy = { kind: 'weighted_round_robin', weights: [3, 1, 0] } as const;
    const balance = createBalance(policy, () => 0, [a, b, c]);
    const turns = (among: Upstream[], count: number): (Upstream | undefined)[] =>
      Array.from({ length: count }, () => balance(fakeExchange({}), among)?.upstream);
    assert.deepEqual(turns([a, b, c], 8), [a, a, b, a, a, a, b, a]);
    assert.deepEqual(turns([b, c], 2), [b, b]);
    assert.deepEqual(turns([c], 1), [c]);
    assert.deepEqual(turns([], 1), [undefined]);
  });

  it('random_choose takes the least busy of several chosen at random', () => {
    const [busy, idle, other] = upstreams(3);
    assert.ok(busy && idle && other);
    busy.inFlight = 3;
    other.inFlight = 1;
    for (const [number, expected] of [
      [0, idle],
      [0.99, idle],
    ] as const) {
      const balance = createBalance({ kind: 'random_choose', choices: 2 }, () => number);
      assert.equal(balance(fakeExchange({}), [busy, idle, other])?.upstream, expected);
    }
    const all = createBalance({ kind: 'random_choose', choices: 9 }, () => 0);
    assert.equal(all(fakeExchange({}), [busy, other])?.upstream, other);
  });

  it('query keeps a parameter value on one upstream, whatever else the query contains', () => {
    const balance = createBalance({ kind: 'query', name: 'user' }, () => 0.5);
    const of = (target: string): Upstream | undefined =>
      balance(fakeExchange({ target }), [a, b, c])?.upstream;
    assert.equal(of('/?user=1&x=2'), of('/other?y=3&user=1'));
    const reached = new Set(Array.from({ length: 50 }, (_, i) => of(`/?user=${i}`)));
    assert.equal(reached.size, 3);
    assert.equal(of('/none'), b);
  });

  it('random reaches every upstream', () => {
    const reached = [0, 0.4, 0.99].map(
      (number) =>
        createBalance({ kind: 'random' }, () => number)(fakeExchange({}), [a, b, c])?.upstream,
    );
    assert.deepEqual(reached, [a, b, c]);
  });

  it('least_conn takes the one with the fewest requests in progress', () => {
    const [busy, idle, other] = upstreams(3);
    assert.ok(busy && idle && other);
    busy.inFlight = 3;
    idle.inFlight = 1;
    other.inFlight = 2;
    const balance = createBalance({ kind: 'least_conn' }, () => 0.99);
    assert.equal(balance(fakeExchange({}), [busy, idle, other])?.upstream, idle);
  });

  for (const [policy, of] of [
    [{ kind: 'ip_hash' }, (key: string) => fakeExchange({ remoteAddress: key })],
    [{ kind: 'client_ip_hash' }, (key: string) => fakeExchange({ clientAddress: key })],
    [{ kind: 'uri_hash' }, (key: string) => fakeExchange({ target: key })],
    [
      { kind: 'header', name: 'X-Tenant' },
      (key: string) => fakeExchange({ headers: HeaderList.of({ 'x-tenant': key }) }),
    ],
  ] as const) {
    it(`${policy.kind} keeps a key on its upstream, even when another one is removed`, () => {
      const all = upstreams(5);
      const balance = createBalance(policy, Math.random);
      fc.assert(
        fc.property(fc.string({ minLength: 1 }), fc.nat(4), (key, leaving) => {
          const before = balance(of(key), all)?.upstream;
          const left = all.filter((_, i) => i !== leaving);
          const after = balance(of(key), left)?.upstream;
          if (before !== all[leaving]) assert.equal(after, before);
        }),
      );
    });

    it(`${policy.kind} spreads keys`, () => {
      const all = upstreams(4);
      const balance = createBalance(policy, Math.random);
      const counts = new Map<unknown, number>();
      for (let i = 0; i < 4_000; i += 1) {
        const chosen = balance(of(`10.1.${i >> 8}.${i & 255}`), all)?.upstream;
        counts.set(chosen, (counts.get(chosen) ?? 0) + 1);
      }
      for (const upstream of all) {
        const count = counts.get(upstream) ?? 0;
        assert.ok(count > 800 && count < 1_200, String(count));
      }
    });
  }

  it('cookie sends the client back to the same upstream, without revealing its address', () => {
    const policy = { kind: 'cookie', name: 'lb', secret: new Secret('k') } as const;
    const balance = createBalance(policy, () => 0.5);
    const first = balance(fakeExchange({ scheme: 'https' }), [a, b, c]);
    assert.equal(first?.upstream, b);
    assert.match(first?.cookie ?? '', /^lb=[0-9a-f]{64}; Path=\/; HttpOnly; SameSite=Lax; Secure$/);
    const value = first?.cookie?.split(';')[0] ?? '';
    const back = fakeExchange({ headers: HeaderList.of({ cookie: `x=1; ${value}` }) });
    assert.deepEqual(createBalance(policy, () => 0)(back, [a, b, c]), { upstream: b });
    assert.notEqual(createBalance(policy, () => 0)(back, [a, c])?.upstream, b);
  });
});

describe('an upstream that is configured twice', () => {
  for (const [policy, shares] of [
    [{ kind: 'weighted_round_robin', weights: [1, 1, 5] }, '20:50'],
    [{ kind: 'weighted_round_robin', weights: [0, 1, 0] }, '70:0'],
    [{ kind: 'round_robin' }, '47:23'],
    [{ kind: 'first' }, '70:0'],
  ] as const) {
    it(`has the shares of both: ${JSON.stringify(policy)}`, async () => {
      const counts: [number, number] = [0, 0];
      const counting = (index: 0 | 1) =>
        origin((_, response) => {
          counts[index] += 1;
          response.end();
        });
      await using twice = await counting(0);
      await using once = await counting(1);
      const retrying = { tryDurationMs: 0, tryIntervalMs: 250, retries: null, retryMatch: null };
      // The same upstream in another notation.
      const upstreams = [twice.url, `${twice.url}/`, once.url];
      await using gateway = await proxyTo(upstreams, { loadBalancing: { policy, ...retrying } });
      for (let i = 0; i < 70; i += 1) assert.equal((await ask1(gateway.http1)).status, 200);
      assert.equal(counts.join(':'), shares);
    });
  }
});
