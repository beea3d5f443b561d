import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { IncomingHttpHeaders } from 'node:http';
import { ask1, PROTOCOLS } from '../http/exchange-server.ts';
import { origin, type Overrides, proxyTo } from './gateway.ts';

async function seenBy(
  ask: (port: { http1: number; http2: number }) => Promise<unknown>,
  overrides: Overrides = {},
): Promise<IncomingHttpHeaders> {
  let seen: IncomingHttpHeaders = {};
  await using upstream = await origin((request, response) => {
    seen = request.headers;
    response.end();
  });
  await using gateway = await proxyTo([upstream.url], overrides);
  await ask(gateway);
  assert.deepEqual(gateway.faults, []);
  return seen;
}

const SPOOFED = {
  'x-forwarded-for': '203.0.113.9',
  'x-forwarded-proto': 'https',
  'x-forwarded-host': 'evil.example',
  'x-forwarded-prefix': '/evil',
  'x-real-ip': '203.0.113.9',
  forwarded: 'for=203.0.113.9',
};

describe('the fields of a request to the upstream (RFC 9110 §7)', () => {
  for (const { name, ask, port } of PROTOCOLS) {
    it(`keep Host and name the client, over ${name}`, async () => {
      const host = name === 'HTTP/2' ? { ':authority': 'site.example' } : { Host: 'site.example' };
      const seen = await seenBy((ports) => ask(port({ ...ports } as never), { headers: host }));
      assert.equal(seen.host, 'site.example');
      assert.equal(seen['x-forwarded-for'], '127.0.0.1');
      assert.equal(seen['x-forwarded-proto'], 'http');
      assert.equal(seen['x-forwarded-host'], 'site.example');
      assert.equal(seen.via, `${name.slice(5) === '2' ? '2.0' : '1.1'} hubgate`);
    });
  }

  it('drop forwarded fields of a peer that is not trusted', async () => {
    const seen = await seenBy(({ http1 }) => ask1(http1, { headers: SPOOFED }));
    assert.equal(seen['x-forwarded-for'], '127.0.0.1');
    assert.equal(seen['x-forwarded-proto'], 'http');
    assert.notEqual(seen['x-forwarded-host'], 'evil.example');
    assert.equal(seen['x-forwarded-prefix'], undefined);
    assert.equal(seen['x-real-ip'], undefined);
    assert.equal(seen.forwarded, undefined);
  });

  it('extend the forwarded fields of a trusted proxy', async () => {
    const seen = await seenBy(({ http1 }) => ask1(http1, { headers: SPOOFED }), {
      trustedProxies: ['127.0.0.0/8'],
    });
    assert.equal(seen['x-forwarded-for'], '203.0.113.9, 127.0.0.1');
    assert.equal(seen['x-forwarded-proto'], 'https');
    assert.equal(seen['x-forwarded-host'], 'evil.example');
    assert.equal(seen['x-forwarded-prefix'], '/evil');
    assert.equal(seen['x-real-ip'], '203.0.113.9');
    assert.equal(seen.forwarded, 'for=203.0.113.9, for=127.0.0.1');
  });

  it('omit hop-by-hop fields and those that Connection names (RFC 9110 §7.6.1)', async () => {
    const seen = await seenBy(({ http1 }) =>
      ask1(http1, {
        headers: {
          connection: 'close, X-Private',
          'x-private': '1',
          'keep-alive': 'timeout=5',
          'proxy-authorization': 'Basic x',
          te: 'trailers, deflate',
          'x-public': '2',
        },
      }),
    );
    assert.equal(seen['x-private'], undefined);
    assert.equal(seen['keep-alive'], undefined);
    assert.equal(seen['proxy-authorization'], undefined);
    assert.equal(seen.te, 'trailers');
    assert.equal(seen['x-public'], '2');
  });

  it('are changed by header_up, Host included', async () => {
    const seen = await seenBy(({ http1 }) => ask1(http1, { headers: { 'x-a': '1', 'x-b': '2' } }), {
      headerUp: [
        { kind: 'set', name: 'Host', value: 'backend.example' },
        { kind: 'set', name: 'X-From', value: '{host}' },
        { kind: 'delete', name: 'X-A' },
        { kind: 'replace', name: 'X-B', pattern: '\\d', replacement: 'n' },
      ],
    });
    assert.equal(seen.host, 'backend.example');
    assert.match(String(seen['x-from']), /^127\.0\.0\.1:\d+$/);
    assert.equal(seen['x-a'], undefined);
    assert.equal(seen['x-b'], 'n');
  });

  it('name the upstream if header_up leaves Host empty, and are not sent with a Host that is none', async () => {
    await using upstream = await origin(({ headers }, response) => response.end(headers.host));
    for (const [value, status, body] of [
      ['', 200, new URL(upstream.url).host],
      ['{path}', 500, 'Internal Server Error\n'],
    ] as const) {
      const headerUp = [{ kind: 'set', name: 'Host', value }] as const;
      await using gateway = await proxyTo([upstream.url], { headerUp });
      const answer = await ask1(gateway.http1);
      assert.deepEqual([answer.status, answer.body], [status, body]);
    }
  });

  it('have one Host, whatever header_up adds to it', async () => {
    await using upstream = await origin(({ headers }, response) => response.end(headers.host));
    const headerUp = [{ kind: 'add', name: 'Host', value: '{header.x-h}' }] as const;
    await using gateway = await proxyTo([upstream.url], { headerUp });
    const answer = await ask1(gateway.http1, { headers: { 'x-h': 'a/b c' } });
    assert.equal(answer.status, 500);
  });

  it('are not sent for CONNECT and targets without a path', async () => {
    await using upstream = await origin((_, response) => response.end());
    await using gateway = await proxyTo([upstream.url]);
    assert.equal((await ask1(gateway.http1, { method: 'OPTIONS', path: '*' })).status, 400);
  });
});
