import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { canonicalRewrite, canonicalTarget } from '../../../src/http/canonical-target.ts';
import { HttpError } from '../../../src/http/errors.ts';

describe('the canonical form of a request target', () => {
  for (const [target, expected] of [
    ['/', '/'],
    ['*', '*'],
    ['/a/b.c?x=/../y%zz\\', '/a/b.c?x=/../y%zz\\'],
    ["/a-._~!$&'()*+,;=:@/b", "/a-._~!$&'()*+,;=:@/b"],
    // RFC 3986 §5.2.4
    ['/a/b/c/./../../g', '/a/g'],
    ['/account/../.well-known/hub', '/.well-known/hub'],
    ['/account/%2e%2E/.well-known/hub', '/.well-known/hub'],
    ['/a/.%2e/%2E/b', '/b'],
    ['/metrics/.', '/metrics'],
    ['/metrics/%2e', '/metrics'],
    ['/.', '/'],
    ['/a/./', '/a/'],
    ['/metrics/..', '/'],
    ['/../../x', '/x'],
    ['/a/...', '/a/...'],
    ['/.well-known/.x', '/.well-known/.x'],
    ['//a//../b', '//a/b'],
    ['//a//b//', '//a//b//'],
    ['/proxy/https://x/', '/proxy/https://x/'],
    // §6.2.2
    ['/%61dmin/%7eu/%2d%5F', '/admin/~u/-_'],
    ['/caf%c3%a9/a%2fb%3A', '/caf%c3%a9/a%2fb%3A'],
    ['/%252e%252e/x', '/%252e%252e/x'],
    ['/%ff', '/%ff'],
    // §3.3
    ['/a\\b', '/a%5Cb'],
    ['/"<>{}|^`[]', '/%22%3C%3E%7B%7D%7C%5E%60%5B%5D'],
  ] as const) {
    it(`is ${expected} for ${target}`, () => {
      assert.equal(canonicalTarget(target), expected);
      // What is canonical stays so.
      assert.equal(canonicalTarget(expected), expected);
    });
  }

  for (const target of [
    '/%zz',
    '/%',
    '/a%4',
    '/%%41',
    '/a%00b',
    '/account/..%2f.well-known/hub',
    '/a%2F..%2Fb',
    '/a%2f..',
    '/a/.%2Fb',
    '/x\\..\\admin/users',
    '/x/..\\admin',
    '/x%5c%2e%2e%5Cadmin',
    '/app/..;/admin',
    '/app/..;a=b',
    '/app/.;/admin',
  ]) {
    it(`does not exist for ${target}, which is ambiguous`, () => {
      assert.equal(canonicalTarget(target), null);
    });
  }

  it('exists for values from placeholders', () => {
    for (const [target, expected] of [
      ['a b', '/a%20b'],
      ['/100%/x', '/100%25/x'],
      ['/é#/😀?é#', '/%C3%A9%23/%F0%9F%98%80?%C3%A9%23'],
      ['/x/../admin', '/admin'],
      ['/x\n', '/x%0A'],
    ] as const) {
      assert.equal(canonicalRewrite(target), expected);
    }
    assert.throws(() => canonicalRewrite('/x/..\\admin'), HttpError);
    assert.throws(() => canonicalRewrite('/x%00'), HttpError);
  });
});
