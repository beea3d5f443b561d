import { matchers } from '../../../src/matchers/registry.ts';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { MatchCondition } from '../../../src/config/routes.ts';
import type { Exchange } from '../../../src/http/exchange.ts';
import { canonicalTarget } from '../../../src/http/canonical-target.ts';
import { HeaderList } from '../../../src/http/header-list.ts';
import { compileRequestMatcher } from '../../../src/site/text-pattern.ts';
import { fakeExchange } from '../http/fake-exchange.ts';

const matches = (condition: MatchCondition, request: Partial<Exchange>): boolean =>
  compileRequestMatcher([condition], matchers)(fakeExchange(request));
const path = (pattern: string, target: string): boolean =>
  matches({ kind: 'path', paths: [pattern] }, { target: canonicalTarget(target) ?? target });

describe('matchers (hubfile.md §3)', () => {
  for (const [pattern, target, expected] of [
    ['/foo', '/foo', true],
    ['/foo', '/foo?x', true],
    ['/foo', '/foo/', false],
    ['/foo', '/FOO', true],
    ['/foo/*', '/foo/', true],
    ['/foo/*', '/foo/bar/baz', true],
    ['/foo/*', '/foo', false],
    ['/foo*', '/foobar', true],
    ['*.php', '/a/b.php', true],
    ['*.php', '/a/b.phps', false],
    ['*/admin/*', '/x/admin/y', true],
    ['/a/*/c', '/a/b/c', true],
    ['/a/*/c', '/a/b/b/c', false],
    ['/a/*/c*', '/a/b/cde', true],
    ['/a/*/c*', '/a/b/cde/f', false],
    ['/a.b/*/c', '/axb/y/c', false],
    ['*', '/', true],
    ['/sp%20ace/*', '/sp%20ace/x', true],
    ['/caf%C3%A9', '/café', true],
    ['/100%', '/100%25', true],
    ['/.well-known/*', '/.well-known/hub', true],
    ['/metrics', '/metrics/.', true],
  ] as const) {
    it(`path ${pattern} ${expected ? 'takes' : 'leaves'} ${target}`, () => {
      assert.equal(path(pattern, target), expected);
    });
  }

  for (const target of [
    '/admin/x',
    '//admin/x',
    '/./admin/x',
    '/open/../admin/x',
    '/%61dmin/x',
    '/open/%2e%2e/admin/x',
    '/ADMIN/x',
    '/admin%2Fx',
  ]) {
    it(`path decodes ${target}, as an upstream may`, () => {
      assert.equal(path('/admin/*', target), true);
    });
  }

  it('path accepts targets with invalid encoding', () => {
    assert.equal(path('/a*', '/a%zz%ff'), true);
    assert.equal(path('/..', '/../..'), false);
  });

  it('path_regexp stores its captures, in linear time', () => {
    const variables = new Map<string, string>();
    const named = { kind: 'path_regexp', name: 'v', pattern: '^/v(\\d+)/(.*)$' } as const;
    assert.equal(matches(named, { target: '/v12/x', variables }), true);
    assert.deepEqual([variables.get('re.v.1'), variables.get('re.v.2')], ['12', 'x']);
    const evil = { kind: 'path_regexp', name: null, pattern: '^/(a+)+$' } as const;
    assert.equal(matches(evil, { target: `/${'a'.repeat(16_000)}!` }), false);
  });

  it('host ignores case and port; * stands for one label', () => {
    const host = (pattern: string, value: string): boolean =>
      matches({ kind: 'host', hosts: [pattern] }, { host: value });
    assert.equal(host('example.com', 'EXAMPLE.com:8443'), true);
    assert.equal(host('example.com', 'example.com.'), true);
    assert.equal(host('*.example.com', 'a.example.com'), true);
    assert.equal(host('*.example.com', 'a.b.example.com'), false);
    assert.equal(host('*.example.com', 'example.com'), false);
    assert.equal(host('*.example.com', '.example.com'), false);
  });

  it('method, header, query and protocol match', () => {
    assert.equal(matches({ kind: 'method', methods: ['get'] }, { method: 'GET' }), true);
    const headers = HeaderList.of({ Accept: 'text/html', 'X-A': ['1', '2'] });
    const header = (name: string, ...values: string[]): boolean =>
      matches({ kind: 'header', name, values }, { headers });
    assert.deepEqual(
      [
        header('accept', 'text/*'),
        header('x-a', '2'),
        header('x-a'),
        header('x-b'),
        header('x-a', '3'),
      ],
      [true, true, true, false, false],
    );
    const query = (name: string, ...values: string[]): boolean =>
      matches({ kind: 'query', name, values }, { target: '/?a=1&b=' });
    assert.deepEqual(
      [query('a', '1'), query('a', '2'), query('b', '*'), query('c', '*')],
      [true, false, true, false],
    );
    const protocol = (name: string, request: Partial<Exchange>): boolean =>
      matches({ kind: 'protocol', protocol: name }, request);
    assert.equal(protocol('https', { scheme: 'https' }), true);
    assert.equal(protocol('http/2', { httpVersion: '2.0' }), true);
    assert.equal(protocol('http/1.1', { httpVersion: '2.0' }), false);
    assert.equal(protocol('http/1.1+', { httpVersion: '2.0' }), true);
    assert.equal(
      protocol('grpc', { headers: HeaderList.of({ 'content-type': 'application/grpc+proto' }) }),
      true,
    );
  });

  it('header_regexp stores its captures', () => {
    const variables = new Map<string, string>();
    const headers = HeaderList.of({ Authorization: 'Bearer abc' });
    const condition = {
      kind: 'header_regexp',
      name: 'h',
      header: 'authorization',
      pattern: '^Bearer (.*)',
    } as const;
    assert.equal(matches(condition, { headers, variables }), true);
    assert.equal(variables.get('re.h.1'), 'abc');
  });

  it('remote_ip is the peer, client_ip the client that trusted proxies name', () => {
    const request = { remoteAddress: '10.1.2.3', clientAddress: '203.0.113.5' };
    assert.equal(matches({ kind: 'remote_ip', ranges: ['private_ranges'] }, request), true);
    assert.equal(matches({ kind: 'client_ip', ranges: ['private_ranges'] }, request), false);
    assert.equal(matches({ kind: 'client_ip', ranges: ['203.0.113.0/24'] }, request), true);
  });

  it('not excludes each of its sets; all conditions of a set must match', () => {
    const a: MatchCondition = { kind: 'path', paths: ['/a*'] };
    const get: MatchCondition = { kind: 'method', methods: ['GET'] };
    const not: MatchCondition = { kind: 'not', matchers: [[a, get]] };
    assert.equal(matches(not, { target: '/a', method: 'GET' }), false);
    assert.equal(matches(not, { target: '/a', method: 'POST' }), true);
    assert.equal(compileRequestMatcher(null, matchers)(fakeExchange({})), true);
  });
});
