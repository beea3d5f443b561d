import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { HeaderList, utf8Field } from '../../../src/http/header-list.ts';
import { expandPlaceholders as expand, timeValue } from '../../../src/site/placeholders.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

describe('placeholders (hubfile.md §1)', () => {
  const exchange = fakeExchange({
    scheme: 'https',
    method: 'POST',
    host: 'Example.com:8443',
    target: '/a/b%20c?x=1&y=two+words',
    originalTarget: '/orig',
    remoteAddress: '192.0.2.1',
    remotePort: 4711,
    clientAddress: '198.51.100.7',
    headers: HeaderList.of({ 'X-One': utf8Field('Zoë'), Cookie: 'a=1; session=s3' }),
    preset: HeaderList.of({ 'X-Set': 'earlier' }),
    upstream: { hostport: '10.0.0.1:80', latencyMs: 0 },
    variables: new Map([
      ['root', '/srv'],
      ['re.v.1', 'captured'],
    ]),
  });

  for (const [template, text] of [
    ['{host}', 'example.com'],
    ['{hostport}', 'Example.com:8443'],
    ['{port}', '8443'],
    ['{method} {scheme}', 'POST https'],
    ['{path}', '/a/b%20c'],
    ['{uri}', '/a/b%20c?x=1&y=two+words'],
    ['{orig_uri}', '/orig'],
    ['{query}', 'x=1&y=two+words'],
    ['{%uri}', '%2Fa%2Fb%2520c%3Fx%3D1%26y%3Dtwo%2Bwords'],
    ['{%path} {http.request.uri.path_escaped}', '%2Fa%2Fb+c %2Fa%2Fb+c'],
    ['{%query} {http.request.uri.prefixed_query}', 'x%3D1%26y%3Dtwo%2Bwords ?x=1&y=two+words'],
    ['{remote_host} {client_ip}', '192.0.2.1 198.51.100.7'],
    ['{upstream_hostport}', '10.0.0.1:80'],
    ['{orig_?query}|{http.request.orig_uri.prefixed_query}', '|'],
    ['{http.request.remote.host/24} {http.request.remote.host/25,64}', '192.0.2.0/24 192.0.2.0/25'],
    ['{http.request.remote.host/0}|{http.request.remote.host/33}', '0.0.0.0/0|'],
    ['{http.request.remote.host/x}', '{http.request.remote.host/x}'],
    ['{http.request.foo/bar,2} {http.no such}', '{http.request.foo/bar,2} {http.no such}'],
    ['{http.request.uri.query.a/b[]}', ''],
    ['{header.x-one}', 'Zoë'],
    ['[{header.Absent}]', '[]'],
    ['{query.y}', 'two words'],
    ['{cookie.session}{cookie.none}', 's3'],
    ['{path.0}|{path.1}|{path.2}', 'a|b%20c|'],
    ['{re.v.1}{re.v.2}', 'captured'],
    ['{http.request.host} {http.request.remote.host}', 'example.com 192.0.2.1'],
    ['{http.request.uri.path} {http.request.uri.query}', '/a/b%20c x=1&y=two+words'],
    ['{http.request.header.X-One} {http.request.uri.query.y}', 'Zoë two words'],
    ['{http.request.cookie.session} {http.request.uri.path.0}', 's3 a'],
    ['{http.reverse_proxy.upstream.hostport} {http.regexp.v.1}', '10.0.0.1:80 captured'],
    ['{http.request.uri.path.dir}|{file}', '/a/|b%20c'],
    ['{http.request.orig_uri.path}|{http.request.orig_uri.query}', '/orig|'],
    ['{labels.0} {http.request.host.labels.1} {labels.2}', 'com example '],
    ['{path}{?query}', '/a/b%20c?x=1&y=two+words'],
    ['{http.request.proto}', 'HTTP/1.1'],
    ['{remote} {http.request.remote.port}', '192.0.2.1:4711 4711'],
    ['{http.vars.root}{vars.other}', '/srv'],
    ['{labels.x}{system.slash}{system.none}', '{labels.x}/{system.none}'],
    ['\\{host}', '{host}'],
    ['{"a":1}', '{"a":1}'],
    ['{unknown} {un.known} {}', '{unknown} {un.known} {}'],
    ['{http.response.header.X-Set}|{http.response.header.X}', 'earlier|'],
    ['{{host}}', '{example.com}'],
  ] as const) {
    it(`${template} is ${text}`, () => {
      assert.equal(expand(template, exchange), text);
    });
  }

  it('{orig_?query} has its question mark if there is a query', () => {
    for (const [originalTarget, query] of [
      ['/a?b=1', '?b=1'],
      ['/a?', ''],
      ['/a', ''],
    ] as const) {
      assert.equal(expand('{orig_?query}', fakeExchange({ originalTarget })), query);
    }
  });

  it('{http.request.remote.host/24,56} is the network of an IPv6 address, as in Caddy', () => {
    const of = (template: string, remoteAddress: string): string =>
      expand(template, fakeExchange({ remoteAddress }));
    const long = '2001:db8:0:aabb:1:2:3:4';
    assert.equal(of('{http.request.remote.host/24,56}', long), '2001:db8:0:aa00::/56');
    assert.equal(of('{http.request.remote.host/24}', long), '2001:d00::/24');
    assert.equal(of('{http.request.remote.host/24,129}', long), '');
    assert.equal(of('{http.request.remote.host/128}', '::1'), '::1/128');
    assert.equal(of('{http.request.remote.host/64}', '::1'), '::/64');
    assert.equal(of('{http.request.remote.host/24}', ''), '');
  });

  it('{file.base} and {file.ext} are the parts of the last segment, as in Caddy', () => {
    for (const [target, parts] of [
      ['/', '/|'],
      ['/a', 'a|'],
      ['/a.tar.gz?x=.y', 'a.tar|.gz'],
      ['/.htaccess', '|.htaccess'],
      ['/dir.x/', 'dir.x|'],
      ['/dir.x/y', 'y|'],
    ] as const) {
      assert.equal(expand('{file.base}|{file.ext}', fakeExchange({ target })), parts, target);
    }
  });

  it('{file.base} takes a time that does not grow with the square of a path', () => {
    // A search that begins at each letter would take hours.
    const target = `/${'a'.repeat(2_000_000)}/b.c`;
    assert.equal(expand('{file.base}', fakeExchange({ target })), 'b');
  });

  it('{time.now} has the formats of Caddy, in UTC', () => {
    const now = new Date('2026-11-22T05:06:07.089Z');
    const form = (name: string) => timeValue(`time.now${name}`, now);
    assert.deepEqual(
      ['', '.http', '.common_log', '.year', '.unix', '.unix_ms', '.other'].map(form),
      [
        '2026-11-22T05:06:07.089Z',
        'Sun, 22 Nov 2026 05:06:07 GMT',
        '22/Nov/2026:05:06:07 +0000',
        '2026',
        '1795323967',
        '1795323967089',
        undefined,
      ],
    );
    assert.match(expand('{time.now.unix}', exchange), /^\d{10}$/);
    assert.ok(expand('{system.hostname}', exchange).length > 0);
  });

  it('{http.response.header.NAME} is the field once a response exists', () => {
    const response = HeaderList.of({ 'X-User': '42' });
    assert.equal(expand('{http.response.header.x-user}!', exchange, response), '42!');
    assert.equal(expand('{http.response.header.none}!', exchange, response), '!');
  });

  it('{uuid} is the same for the whole request', () => {
    const one = expand('{uuid}', exchange);
    assert.match(one, /^[0-9a-f-]{36}$/);
    assert.equal(expand('{uuid}', exchange), one);
    assert.notEqual(expand('{uuid}', fakeExchange({})), one);
  });

  it('{port} is empty without one in Host', () => {
    assert.equal(expand('{port}', fakeExchange({ scheme: 'https', host: 'a' })), '');
    assert.equal(expand('{port}', fakeExchange({ scheme: 'http', host: '[::1]' })), '');
  });

  it('are not expanded inside the value of another placeholder', () => {
    const nested = fakeExchange({
      headers: HeaderList.of({ evil: '{header.secret}', secret: 's' }),
    });
    assert.equal(expand('{header.evil}', nested), '{header.secret}');
  });

  it('leave text without braces unchanged', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        fc.pre(!text.includes('{'));
        assert.equal(expand(text, exchange), text);
      }),
    );
  });
});
