import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseHubfile } from '../../../src/index.ts';
import { cachePlaces } from '../../../src/runtime/cache-places.ts';

/** The digest of the only cache in a site with these routes. */
function digestOf(routes: string): string {
  const text = `http://a.example, http://b.example {\n${routes}\n}\n`;
  const places = parseHubfile(text, { env: {} }).sites.flatMap(cachePlaces);
  const [place] = places;
  assert.ok(place !== undefined && places.length === 1);
  return place.digest;
}

/** Whether the cache keeps what it has stored if a neighbour changes in this way. */
function keeps(before: string, after: string): boolean {
  return digestOf(before) === digestOf(after);
}

const OWN = 'cache /a/*\nreverse_proxy /a/* localhost:1\n';
const ON_HOST = '@a host a.example\ncache @a\nreverse_proxy @a localhost:1\n';

describe('whether a cache keeps its responses when something beside it changes (cache.md)', () => {
  for (const [title, own, before, after] of [
    ['another path', OWN, 'reverse_proxy /b/* localhost:2', 'reverse_proxy /b/* localhost:3'],
    ['a new path', OWN, '', 'respond /b gone'],
    ['a rule before it for another path', OWN, '', 'header /b/* X-New yes'],
    ['several paths', OWN, '@b path /b/* /c /A', '@b path /b/* /c /A\nrespond @b gone'],
    ['a block', OWN, 'handle /b/* {\nrespond old\n}', 'handle /b/* {\nrespond new\n}'],
    ['a path and more', OWN, '', '@b {\npath /b/*\nmethod POST\n}\nrespond @b gone'],
    ['another host', ON_HOST, '', '@b host b.example\nrespond @b gone'],
    ['a rewrite before both', `rewrite /old/* /a/x\n${OWN}`, '', 'respond /b gone'],
    ['a rewrite of another path', OWN, '', 'handle_path /b/* {\nrespond gone\n}'],
  ] as const) {
    it(`keeps them: ${title}`, () => assert.ok(keeps(`${own}${before}`, `${own}${after}`)));
  }

  for (const [title, own, before, after] of [
    ['its own upstream', 'cache /a/*\n', 'reverse_proxy localhost:1', 'reverse_proxy localhost:2'],
    ['a path within its own', OWN, '', 'header /a/b* X-New yes'],
    ['a path around its own', OWN, '', 'header /A* X-New yes'],
    ['one of several paths', OWN, '', '@b path /b /a/c\nrespond @b gone'],
    ['a pattern', OWN, '', 'header /*/b X-New yes'],
    ['an escaped path', OWN, '', 'header /%61/* X-New yes'],
    ['slashes that matchers merge', OWN, '', 'header //a/* X-New yes'],
    ['a placeholder', OWN, '', 'header /{query.x}* X-New yes'],
    ['another kind of condition', OWN, '', '@b method GET\nheader @b X-New yes'],
    ['a capture', OWN, '', '@b {\npath_regexp /(.*)\npath /b\n}\nheader @b X-New yes'],
    ['the same host in capitals', ON_HOST, '', '@b host A.Example\nheader @b X-New yes'],
    ['a wildcard of hosts', ON_HOST, '', '@b host *.example\nheader @b X-New yes'],
    ['a path beside a host', ON_HOST, '', 'header /b X-New yes'],
  ] as const) {
    it(`drops them: ${title}`, () => assert.ok(!keeps(`${own}${before}`, `${own}${after}`)));
  }

  for (const [title, change] of [
    ['rewrite', 'rewrite /a/x /b/x'],
    ['uri', 'uri replace /a/ /b/'],
    ['try_files', 'try_files /b/x'],
    ['a change within a block', 'route {\nrewrite /a/x /b/x\n}'],
  ]) {
    it(`drops them if a request may get the path of the neighbour on its way: ${title}`, () => {
      const routes = (port: number): string =>
        `route {\ncache /a/*\n${change}\nreverse_proxy /b/* localhost:${port}\n}`;
      assert.ok(!keeps(routes(1), routes(2)));
      const reverse = (value: string): string =>
        `route {\nheader /b/* X-New ${value}\n${change}\ncache /a/*\nreverse_proxy localhost:1\n}`;
      assert.ok(!keeps(reverse('one'), reverse('two')));
      const outside = (port: number): string =>
        `route {\n${change}\ncache /a/*\nreverse_proxy /b/* localhost:${port}\n}`;
      assert.ok(keeps(outside(1), outside(2)));
    });
  }

  it('drops them if a request may get the host of the neighbour on its way', () => {
    const routes = (field: string, port: number): string =>
      `@a host a.example\n@b host b.example\nroute {\ncache @a
request_header ${field} b.example\nreverse_proxy @b localhost:${port}\n}`;
    assert.ok(!keeps(routes('Host', 1), routes('Host', 2)));
    assert.ok(keeps(routes('X-Other', 1), routes('X-Other', 2)));
  });
});
