import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { cacheLookup } from '../../../src/cache/cache-key.ts';
import { mayStore } from '../../../src/cache/storage-policy.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { cpuMs } from '../../support/cpu-time.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

const NOW = Date.parse('2026-01-01T00:00:00Z');
const RULES = { ttlMs: null, staleMs: 0, personalFields: ['hub-access-token'] };

type Fields = Readonly<Record<string, string | readonly string[]>>;

/** Milliseconds for which an answer is fresh; or why it is not kept. */
function verdict(
  response: Fields,
  request: Fields = {},
  status = 200,
  rules = {},
): number | string {
  const found = mayStore(
    { headers: HeaderList.of(request) },
    { status, headers: HeaderList.of({ Date: 'Thu, 01 Jan 2026 00:00:00 GMT', ...response }) },
    { ...RULES, ...rules },
    NOW,
  );
  return found.kind === 'refused' ? found.detail : found.freshness.lifetimeMs;
}

/** What the answer says, what was asked, and what is made of it. */
const TABLE: readonly (readonly [response: Fields, request: Fields, expected: number | string])[] =
  [
    [{ 'Cache-Control': 'max-age=60' }, {}, 60_000],
    [{ 'Cache-Control': 'max-age=60, s-maxage=5' }, {}, 5_000],
    [{ 'Cache-Control': 'max-age=60, max-age=30' }, {}, 30_000],
    [{ 'Cache-Control': 'max-age="60"' }, {}, 60_000],
    [{ 'Cache-Control': "max-age='60'" }, {}, 'no-freshness'],
    [{ 'Cache-Control': 'max-age =60' }, {}, 'no-freshness'],
    [{ 'Cache-Control': 'x="max-age=60", max-age=5' }, {}, 5_000],
    [{ 'Cache-Control': 'x="\\", max-age=60", max-age=5' }, {}, 5_000],
    [{ 'Cache-Control': 'x="a", y="b, private, max-age=5' }, {}, 'private'],
    [{ 'Cache-Control': 'private="x, max-age=5' }, {}, 'private'],
    [{ Expires: 'Thu, 01 Jan 2026 00:01:00 GMT' }, {}, 60_000],
    [{ Expires: '0' }, {}, 'no-freshness'],
    [{ 'Cache-Control': 'no-store, max-age=60' }, {}, 'no-store'],
    [{ 'Cache-Control': 'no-store, must-understand, max-age=60' }, {}, 60_000],
    [{ 'Cache-Control': 'private, max-age=60' }, {}, 'private'],
    [{ 'Cache-Control': 'private="x", max-age=60' }, {}, 60_000],
    [{ 'Cache-Control': 'no-cache' }, {}, 'no-freshness'],
    [{ 'Cache-Control': 'no-cache', ETag: '"a"' }, {}, 0],
    [{ 'Cache-Control': 'no-store', 'CDN-Cache-Control': 'max-age=60' }, {}, 60_000],
    [{ 'Cache-Control': 'max-age=60', 'CDN-Cache-Control': 'no-store' }, {}, 'no-store'],
    [{ 'Cache-Control': 'max-age=60', 'CDN-Cache-Control': 'max-age=9, &&' }, {}, 60_000],
    [{ 'Cache-Control': 'max-age=60', 'CDN-Cache-Control': 'max-age=9, x=@1' }, {}, 9_000],
    [{ 'Cache-Control': 'no-store', 'CDN-Cache-Control': 'max-age=@9' }, {}, 'no-store'],
    [{ 'Cache-Control': 'max-age=60', 'Surrogate-Control': 'max-age=9' }, {}, 9_000],
    [{ 'Cache-Control': 'max-age=60', 'Surrogate-Control': 'content="ESI/1.0"' }, {}, 60_000],
    [{ 'Cache-Control': 'public, max-age=60', 'Set-Cookie': 'a=b' }, {}, 'set-cookie'],
    [{ 'Cache-Control': 'public, max-age=60', 'Hub-Access-Token': 'x' }, {}, 'personal'],
    [{ 'Cache-Control': 'public, max-age=60', Trailer: 'X, Hub-Access-Token' }, {}, 'personal'],
    [{ 'Cache-Control': 'max-age=60', Vary: 'Accept, *' }, {}, 'vary'],
    [{ 'Cache-Control': 'max-age=60', 'Content-Type': 'text/event-stream' }, {}, 'stream'],
    [{ 'Cache-Control': 'max-age=60', 'Content-Type': 'multipart/x-mixed-replace' }, {}, 'stream'],
    [{ 'Cache-Control': 'max-age=60' }, { Cookie: 'a=b' }, 'cookie'],
    [{ 'Cache-Control': 'public, max-age=60' }, { Cookie: 'a=b' }, 60_000],
    [{ 'Cache-Control': 's-maxage=60' }, { Cookie: 'a=b' }, 60_000],
    [{ 'Cache-Control': 'max-age=60' }, { Authorization: 'x' }, 'authorization'],
    ...[
      { Authorization: 'x' },
      { Authorization: 'x', Cookie: 'a=b' },
      { 'X-Forwarded-User': 'alice' },
    ].map(
      (request) =>
        [{ 'Cache-Control': 'max-age=60, must-revalidate' }, request, 'authorization'] as const,
    ),
    [{ 'Cache-Control': 'public, max-age=60' }, { Authorization: 'x' }, 60_000],
    [{ 'Cache-Control': 'max-age=60', 'Cache-Tags': 'x,'.repeat(257) }, {}, 'tags'],
    [{ 'Cache-Control': 'max-age=60', xkey: 'x'.repeat(1025) }, {}, 'tags'],
    [{ 'Cache-Control': 'max-age=60' }, { 'X-Api-Key': 'x' }, 'authorization'],
    [{ 'Cache-Control': 'public, max-age=60' }, { 'X-Api-Key': 'x' }, 60_000],
    [{}, {}, 'no-freshness'],
  ];

describe('the responses that a cache may keep', () => {
  for (const [response, request, expected] of TABLE) {
    it(`${JSON.stringify(response).slice(0, 100)} asked with ${JSON.stringify(request)}: ${expected}`, () => {
      assert.equal(verdict(response, request), expected);
    });
  }

  it('have any status but 206 and 304, if they specify a lifetime', () => {
    const fields = { 'Cache-Control': 'max-age=60' };
    assert.equal(verdict(fields, {}, 599), 60_000);
    assert.equal(verdict(fields, {}, 206), 'status-206');
    assert.equal(verdict(fields, {}, 304), 'status-304');
    const understands = { 'Cache-Control': 'max-age=60, no-store, must-understand' };
    assert.equal(verdict(understands, {}, 599), 'must-understand');
  });

  it('have the lifetime of ttl if they specify none and their status allows it', () => {
    const rules = { ttlMs: 5_000 };
    assert.equal(verdict({}, {}, 200, rules), 5_000);
    assert.equal(verdict({}, {}, 404, rules), 5_000);
    assert.equal(verdict({}, {}, 500, rules), 'no-freshness');
    assert.equal(verdict({}, {}, 405, rules), 'no-freshness');
    assert.equal(verdict({ Expires: '0' }, {}, 200, rules), 'no-freshness');
    assert.equal(verdict({ 'Cache-Control': 'max-age=1' }, {}, 200, rules), 1_000);
    assert.equal(verdict({}, { Cookie: 'a=b' }, 200, rules), 'cookie');
    assert.equal(verdict({}, { 'X-Forwarded-User': 'alice' }, 200, rules), 'authorization');
    for (const name of ['CDN-Cache-Control', 'Surrogate-Control']) {
      const asked = (value: string): number | string =>
        verdict({ [name]: value }, { Cookie: 'a=b' }, 200, rules);
      for (const value of ['must-revalidate', 'no-cache', 'stale-if-error=60']) {
        assert.equal(asked(value), 'cookie', `${name}: ${value}`);
      }
      assert.equal(asked('max-age=1'), 1_000, name);
      assert.equal(asked('s-maxage=2'), name === 'CDN-Cache-Control' ? 2_000 : 'cookie', name);
    }
  });

  it('are stored without the fields for one connection, one client or caches only', () => {
    const headers = HeaderList.of({
      'Cache-Control': 'max-age=60, private="x-own", no-cache="x-new"',
      'Surrogate-Key': 'one two',
      // As it arrives: one character per byte of UTF-8.
      'Cache-Tags': 'three, caf\u00c3\u00a9',
      Age: '5',
      'Proxy-Authenticate': 'x',
      'X-Own': '1',
      'X-New': '2',
      'X-Kept': '3',
    });
    const found = mayStore({ headers: new HeaderList() }, { status: 200, headers }, RULES, NOW);
    assert.ok(found.kind === 'stored');
    assert.deepEqual(
      [...found.headers].map(([name]) => name),
      ['Cache-Control', 'X-Kept'],
    );
    assert.deepEqual(found.tags, ['one', 'two', 'three', 'café']);
  });

  it('are recognised in linear time', () => {
    const quotes = `"${'\\"'.repeat(100_000)}`;
    const spaces = `a${' '.repeat(200_000)}b`;
    const hostile = cpuMs(() => {
      const headers = HeaderList.of({ 'Cache-Control': `no-store, ${quotes}` });
      assert.deepEqual(cacheLookup(fakeExchange({ headers }), []), { bypass: 'request-no-store' });
      // More members than a cache reads forbid to store.
      assert.equal(verdict({ 'Cache-Control': `private, ${quotes}` }), 'no-store');
      for (const name of ['Cache-Control', 'CDN-Cache-Control', 'Cache-Tags', 'Vary', 'Age']) {
        verdict({ 'Cache-Control': 'max-age=60', [name]: spaces });
      }
    });
    assert.ok(hostile < 1_000, `${hostile} ms`);
  });
});
