import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { defaultDynamic, type DynamicConfig } from '../../../src/proxy/proxy-config.ts';
import { MAX_DYNAMIC_UPSTREAMS } from '../../../src/proxy/dynamic-upstreams.ts';
import { ReverseProxy } from '../../../src/proxy/reverse-proxy.ts';
import { type DnsAnswer, startDnsServer } from '../../support/dns-server.ts';
import { TestClock } from '../../support/test-clock.ts';
import { ask1 } from '../http/exchange-server.ts';
import { origin, proxyConfig, proxyOptions, proxyTo, type TestGateway, until } from './gateway.ts';

const NAME = 'app.internal';

/** A server of names whose one answer the test changes, and upstreams that are looked up there. */
async function named(test: TestContext, first: DnsAnswer) {
  const state = { answer: first };
  const { address, questions } = await startDnsServer(test, () => state.answer);
  const settings = { ...defaultDynamic, name: NAME, resolvers: [address], dialTimeoutMs: 200 };
  return {
    state,
    questions,
    a: (port: number, more: Partial<DynamicConfig> = {}) =>
      ({ ...settings, kind: 'a', port, versions: ['ipv4'], ...more }) as DynamicConfig,
    srv: (more: Partial<DynamicConfig> = {}) =>
      ({ ...settings, kind: 'srv', ...more }) as DynamicConfig,
  };
}

const addresses = (...list: string[]): DnsAnswer => ({ kind: 'a', addresses: list });
const services = (...ports: number[]): DnsAnswer => ({
  kind: 'srv',
  services: ports.map((port, priority) => ({ port, priority, target: 'localhost' })),
});
const hostports = ({ registry }: TestGateway): string[] =>
  registry.upstreams().map(({ address }) => address.hostport);

describe('dynamic a', () => {
  it('uses the addresses of a name as upstreams, and the first request waits for them', async (test) => {
    await using upstream = await origin((_, response) => response.end('ok'));
    const dns = await named(test, addresses('127.0.0.2', '127.0.0.1'));
    // Longer than the timers of Node.
    const dynamic = dns.a(upstream.port, { dialTimeoutMs: 2 ** 40 });
    await using gateway = await proxyTo([], { dynamic });
    assert.equal((await ask1(gateway.http1)).status, 200);
    assert.deepEqual(hostports(gateway), [
      `127.0.0.1:${upstream.port}`,
      `127.0.0.2:${upstream.port}`,
    ]);
    assert.deepEqual(dns.questions, [`a ${NAME}`]);
  });

  it('queries only the configured IP versions', async (test) => {
    const dns = await named(test, { kind: 'aaaa', addresses: ['::1'] });
    const dynamic = dns.a(1, { versions: ['ipv4', 'ipv6'] });
    await using gateway = await proxyTo([], { dynamic });
    await ask1(gateway.http1);
    assert.deepEqual(hostports(gateway), ['[::1]:1']);
    assert.deepEqual([...dns.questions].sort(), [`a ${NAME}`, `aaaa ${NAME}`]);
  });

  it('follows the DNS with each refresh, keeping the state of upstreams that stay', async (test) => {
    const clock = new TestClock();
    const dns = await named(test, addresses('127.0.0.1', '127.0.0.2'));
    await using gateway = await proxyTo([], { dynamic: dns.a(1) }, { clock });
    await until(() => hostports(gateway).length === 2, 'the first lookup is over');
    const [, stays] = gateway.registry.upstreams();
    dns.state.answer = addresses('127.0.0.2', '127.0.0.3');
    clock.advance(defaultDynamic.refreshMs);
    await until(() => hostports(gateway).includes('127.0.0.3:1'), 'the second lookup is over');
    assert.deepEqual(hostports(gateway), ['127.0.0.2:1', '127.0.0.3:1']);
    assert.ok(gateway.registry.upstreams().includes(stays ?? assert.fail()));
  });

  for (const answer of ['failure', 'no-such-name'] as const) {
    it(`keeps the old list when a lookup ends with ${answer}, and retries soon`, async (test) => {
      const clock = new TestClock();
      const dns = await named(test, addresses('127.0.0.1'));
      await using gateway = await proxyTo([], { dynamic: dns.a(1) }, { clock });
      await until(() => hostports(gateway).length === 1, 'the first lookup is over');
      dns.state.answer = answer;
      const before = dns.questions.length;
      clock.advance(defaultDynamic.refreshMs);
      await until(() => dns.questions.length > before, 'the second lookup is made');
      dns.state.answer = addresses('127.0.0.9');
      await until(() => {
        clock.advance(5_000);
        return hostports(gateway)[0] === '127.0.0.9:1';
      }, 'the third lookup is over');
    });
  }

  it('keeps it for grace_period only, then uses the upstreams named in the Hubfile', async (test) => {
    const clock = new TestClock();
    const dns = await named(test, addresses('127.0.0.1'));
    const dynamic = dns.a(1, { graceMs: 60_000 });
    await using gateway = await proxyTo(['http://127.0.0.7:7'], { dynamic }, { clock });
    await until(() => hostports(gateway)[0] === '127.0.0.1:1', 'the first lookup is over');
    dns.state.answer = 'no-such-name';
    clock.advance(defaultDynamic.refreshMs);
    let advanced = 0;
    await until(() => {
      if (hostports(gateway)[0] === '127.0.0.7:7') return true;
      clock.advance(1_000);
      advanced += 1_000;
      return false;
    }, 'the list is given up');
    assert.ok(advanced >= 59_000, String(advanced));
  });

  it('answers 503 while no upstream is known', async (test) => {
    const dns = await named(test, 'no-such-name');
    await using gateway = await proxyTo([], { dynamic: dns.a(1) });
    assert.equal((await ask1(gateway.http1)).status, 503);
  });

  it('limits the number of its upstreams', async (test) => {
    const many = Array.from({ length: 300 }, (_, i) => `127.1.${Math.floor(i / 200)}.${i % 200}`);
    const dns = await named(test, addresses(...many));
    await using gateway = await proxyTo([], { dynamic: dns.a(1) });
    await until(() => hostports(gateway).length > 0, 'the lookup is over');
    assert.equal(hostports(gateway).length, MAX_DYNAMIC_UPSTREAMS);
  });

  it('has the list, and the health of its upstreams, immediately after a reload', async (test) => {
    const dns = await named(test, addresses('127.0.0.1'));
    const passiveHealth = { failDurationMs: 60_000 };
    await using gateway = await proxyTo([], { dynamic: dns.a(1), passiveHealth });
    await until(() => hostports(gateway).length === 1, 'the lookup is over');
    gateway.registry.upstreams()[0]?.recordFailure(performance.now());
    const next = new ReverseProxy(
      proxyConfig([], { dynamic: dns.a(1), passiveHealth }),
      proxyOptions(gateway.registry),
    );
    gateway.proxy.close();
    assert.equal(gateway.registry.upstreams()[0]?.failuresSince(0), 1);
    assert.equal(dns.questions.length, 1);
    next.close();
    assert.deepEqual(hostports(gateway), []);
  });

  it('makes no more lookups once its proxy is closed', async (test) => {
    const clock = new TestClock();
    const dns = await named(test, addresses('127.0.0.1'));
    await using gateway = await proxyTo([], { dynamic: dns.a(1) }, { clock });
    await until(() => hostports(gateway).length === 1, 'the lookup is over');
    gateway.proxy.close();
    clock.advance(10 * defaultDynamic.refreshMs);
    assert.equal(dns.questions.length, 1);
  });
});

describe('dynamic srv (RFC 2782)', () => {
  it('uses the targets and ports of a service as upstreams, by their priority', async (test) => {
    await using first = await origin((_, response) => response.end('first'));
    await using second = await origin((_, response) => response.end('second'));
    const dns = await named(test, services(first.port, second.port));
    await using gateway = await proxyTo([], { dynamic: dns.srv() });
    assert.equal((await ask1(gateway.http1)).body, 'first');
    assert.deepEqual(dns.questions, [`srv ${NAME}`]);
    await first.close();
    assert.equal((await ask1(gateway.http1)).body, 'second');
  });

  it('takes a target of . to mean that there is no service', async (test) => {
    const dns = await named(test, {
      kind: 'srv',
      services: [{ priority: 0, port: 1, target: '.' }],
    });
    await using gateway = await proxyTo([], { dynamic: dns.srv() });
    assert.equal((await ask1(gateway.http1)).status, 503);
  });

  it('leaves out targets that are no names of hosts, and uses the others', async (test) => {
    const clock = new TestClock();
    const targets = ['app.1', '1.2.3.256', 'localhost'];
    const dns = await named(test, services(1));
    await using gateway = await proxyTo([], { dynamic: dns.srv() }, { clock });
    await until(() => hostports(gateway).length === 1, 'the first lookup is over');
    dns.state.answer = {
      kind: 'srv',
      services: targets.map((target) => ({ priority: 0, port: 2, target })),
    };
    clock.advance(defaultDynamic.refreshMs);
    await until(() => hostports(gateway)[0] === 'localhost:2', 'the second lookup is over');
    assert.deepEqual(hostports(gateway), ['localhost:2']);
  });
});
