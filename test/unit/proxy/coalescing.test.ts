import assert from 'node:assert/strict';
import { once } from 'node:events';
import net from 'node:net';
import { describe, it } from 'node:test';
import { BodyMemory } from '../../../src/coalescing/arriving-body.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { Identity } from '../../../src/http/identity.ts';
import { isShareable, requestKey } from '../../../src/proxy/shareable.ts';
import type { RequestSharing } from '../../../src/proxy/shared-forwarding.ts';
import { fakeExchange } from '../http/fake-exchange.ts';
import { origin, proxyTo, until } from './gateway.ts';

const question = {
  method: 'GET',
  target: '/a',
  headers: new HeaderList(),
  parameters: new Map<string, string>(),
};
const keyOf = (
  exchange: Partial<Exchange> = {},
  asked: Partial<Parameters<typeof requestKey>[1]> = {},
): string | null => requestKey(fakeExchange(exchange), { ...question, ...asked });
const withField = (name: string, value: string): { headers: HeaderList } => ({
  headers: HeaderList.of({ [name]: value }),
});

describe('the key of requests that look identical to an upstream', () => {
  it('contains all that the upstream sees', () => {
    const bob = new Identity();
    bob.user = 'bob';
    const keys = [
      keyOf(),
      keyOf({ host: 'other' }),
      keyOf({ scheme: 'https' }),
      keyOf({ identity: bob }),
      keyOf({}, { target: '/b' }),
      keyOf({}, { parameters: new Map([['REMOTE_USER', 'bob']]) }),
      ...['Accept', 'User-Agent', 'CF-Ray', 'X-Forwarded-Host', 'If-None-Match'].map((name) =>
        keyOf({}, withField(name, 'x')),
      ),
      keyOf({}, withField('X-Forwarded-For', '<script>, 192.0.2.1')),
      keyOf({}, withField('X-Real-IP', '192.0.2.9')),
      keyOf({}, withField('traceparent', '00-1-2-01')),
    ];
    assert.equal(new Set(keys).size, keys.length);
  });

  it('omits the address of the client, and which cookies there are', () => {
    for (const [name, values] of [
      ['X-Forwarded-For', ['192.0.2.1', '192.0.2.2, ::1']],
      ['X-Real-IP', ['127.0.0.1']],
      ['Cookie', ['a=1', 'b=2']],
    ] as const) {
      const keys = values.map((value) => keyOf({}, withField(name, value)));
      assert.equal(new Set(keys).size, 1, name);
      assert.notEqual(keys[0], keyOf(), 'but not that there is one');
    }
    const address = (text: string) => keyOf({}, { parameters: new Map([['REMOTE_ADDR', text]]) });
    assert.equal(address('192.0.2.1'), address('192.0.2.2'));
  });

  it('does not exist for a request whose response must not be shared', () => {
    assert.equal(keyOf({ hasBody: true }), null);
    assert.equal(keyOf({ method: 'POST' }), null);
    assert.equal(keyOf({}, { method: 'POST' }), null);
    assert.equal(keyOf({}, withField('Authorization', 'x')), null);
    assert.equal(keyOf({}, withField('Range', 'bytes=0-1')), null);
  });
});

describe('a response that others may have without validation', () => {
  const NOW = Date.parse('Wed, 01 Jul 2026 12:00:00 GMT');
  const isShared = (fields: Record<string, string | string[]>): boolean =>
    isShareable({ status: 200, headers: HeaderList.of(fields) }, new HeaderList(), NOW);

  it('names no time, or one that has not passed', () => {
    for (const fields of [
      {},
      { 'Cache-Control': 'max-age=60' },
      { 'Cache-Control': 'max-age="60", must-revalidate' },
      { 'Cache-Control': 's-maxage=60, max-age=0' },
      { 'Cache-Control': 'max-age=60', Expires: '0' },
      { Expires: 'Wed, 01 Jul 2026 12:00:01 GMT' },
    ]) {
      assert.equal(isShared(fields), true, JSON.stringify(fields));
    }
  });

  it('names no invalid time (RFC 9111 §4.2.1, §5.3)', () => {
    for (const fields of [
      { 'Cache-Control': 'max-age=0' },
      { 'Cache-Control': 'max-age=0, max-age=60' },
      { 'Cache-Control': 'max-age=60, max-age=0' },
      { 'Cache-Control': 'max-age=1e3' },
      { 'Cache-Control': 'max-age=' },
      { 'Cache-Control': 's-maxage=0, max-age=60' },
      { 'Cache-Control': 'max-age = 0' },
      { 'Cache-Control': 'max-age=0; public' },
      { 'Cache-Control': 'max-age=0 must-revalidate' },
      { 'Cache-Control': 'max-age=60', Age: '60' },
      { Date: 'Wed, 01 Jul 2026 11:50:00 GMT', Expires: 'Wed, 01 Jul 2026 11:55:00 GMT' },
      { Expires: '0' },
      { Expires: '3600' },
      { Expires: '2099' },
      { Expires: 'Wed, 01 Jul 2026 12:00:00 GMT' },
      { Expires: ['Wed, 01 Jul 2026 12:00:01 GMT', 'Wed, 01 Jul 2026 12:00:01 GMT'] },
    ]) {
      assert.equal(isShared(fields), false, JSON.stringify(fields));
    }
  });

  it('has no directive that forbids it, also with a value or after a comma in quotes', () => {
    for (const directive of [
      'private',
      'private="a"',
      'no-cache',
      'NO-STORE',
      'a="b, c", private',
      'private = x',
      'private="a" b',
      'no-store = 1',
      'no-cache; private',
      'max-age=60 private',
      `${'a, '.repeat(64)}b`,
    ]) {
      assert.equal(isShared({ 'Cache-Control': `max-age=60, ${directive}` }), false, directive);
    }
    assert.equal(isShared({ 'Cache-Control': 'a="b, private, c"' }), true);
    assert.equal(isShared({ 'Cache-Control': 'x-private = 1' }), true);
  });

  it('permits nothing with an invalid directive', () => {
    const request = HeaderList.of({ Cookie: 'a=b' });
    const isPublic = (directive: string): boolean =>
      isShareable(
        { status: 200, headers: HeaderList.of({ 'Cache-Control': directive }) },
        request,
        NOW,
      );
    const directives = ['public', 'public = 1', 's-maxage = 60'];
    assert.deepEqual(directives.map(isPublic), [true, false, false]);
  });
});

const byTarget: RequestSharing = {
  groupOf: () => ({ name: '', gatherMs: 0, keepMs: 60_000 }),
  ownPages: () => null,
  spread: () => Promise.resolve(),
  forOthers: (fields) => fields.clone(),
  shared: () => {},
};

/** Asks, and reads nothing of the answer. */
async function stalled(port: number, target: string): Promise<net.Socket> {
  const socket = net.connect({ port, host: '127.0.0.1' });
  await once(socket, 'connect');
  socket.on('error', () => {});
  socket.pause();
  socket.write(`GET ${target} HTTP/1.1\r\nHost: a\r\n\r\n`);
  return socket;
}

describe('responses that are shared with slow readers', () => {
  const PAGE = Buffer.alloc(1_000_000, 'x');
  const BOUND = 4_000_000;

  it('stay within the memory limit, whoever reads them: the oldest is dropped first', async () => {
    let requests = 0;
    await using app = await origin((_request, response) => {
      requests += 1;
      response.end(PAGE);
    });
    const bodyMemory = new BodyMemory(BOUND);
    await using gateway = await proxyTo([app.url], {}, { sharing: byTarget, bodyMemory });
    const sockets: net.Socket[] = [];
    for (let page = 0; page < 12; page += 1) {
      for (let reader = 0; reader < 4; reader += 1) {
        sockets.push(await stalled(gateway.http1, `/${page}`));
      }
      await until(() => requests > page, 'the app is asked');
      assert.ok(bodyMemory.bytes <= BOUND);
    }
    const last = await fetch(`http://127.0.0.1:${gateway.http1}/new`);
    assert.equal((await last.arrayBuffer()).byteLength, PAGE.length);
    assert.ok(bodyMemory.bytes <= BOUND, String(bodyMemory.bytes));
    for (const socket of sockets) socket.destroy();
  });

  it('delay no other client: the first may read as slowly as it likes', async () => {
    let requests = 0;
    await using app = await origin((_request, response) => {
      requests += 1;
      response.end(PAGE);
    });
    await using gateway = await proxyTo([app.url], {}, { sharing: byTarget });
    const slow = await stalled(gateway.http1, '/');
    await until(() => requests === 1, 'the app is asked');
    const answers = Array.from({ length: 20 }, async () => {
      const answer = await fetch(`http://127.0.0.1:${gateway.http1}/`, {
        headers: { connection: 'close' },
      });
      return (await answer.arrayBuffer()).byteLength;
    });
    const sizes = await Promise.all(answers);
    assert.deepEqual(new Set(sizes), new Set([PAGE.length]));
    slow.destroy();
  });

  it('are delivered in full even if they are too large to share', async () => {
    const large = Buffer.alloc(3_000_000, 'y');
    await using app = await origin((_request, response) => void response.end(large));
    const bodyMemory = new BodyMemory();
    await using gateway = await proxyTo([app.url], {}, { sharing: byTarget, bodyMemory });
    const both = await Promise.all(
      [1, 2].map(async () => {
        const answer = await fetch(`http://127.0.0.1:${gateway.http1}/`);
        return (await answer.arrayBuffer()).byteLength;
      }),
    );
    assert.deepEqual(both, [large.length, large.length]);
    assert.equal(bodyMemory.bytes, 0);
  });
});
