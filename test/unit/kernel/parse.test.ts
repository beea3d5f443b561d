import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { parseUrl } from '../../../src/kernel/parse.ts';

/** A reference, its base, and the URL that Node 24 makes of them; null for none. */
type Vector = readonly [text: string, base: string, href: string | null];

const VECTORS: readonly Vector[] = JSON.parse(
  readFileSync(new URL('./vectors/urls-of-node-24.json', import.meta.url), 'utf8'),
);

describe('the one URL parser', () => {
  it('resolves dot segments after a segment that begins with a dot (WHATWG URL §4.4)', () => {
    for (const [text, path] of [
      ['https://a.b/x/.y/../z', '/x/z'],
      ['https://example.com/users/42/.x/../../43/secret', '/users/43/secret'],
      ['/foo/.x/../../.well-known/hub/subscriptions/a', '/.well-known/hub/subscriptions/a'],
      ['foo://h/..', '/'],
      ['foo:/a/.b/../c', '/a/c'],
    ] as const) {
      assert.equal(parseUrl(text, 'https://hub.example/')?.pathname, path, text);
    }
  });

  it('agrees with the parser of Node 24', () => {
    for (const [text, base, href] of VECTORS) {
      assert.equal(parseUrl(text, base)?.href ?? null, href, `${text} against ${base}`);
    }
  });

  it('resolves references like RFC 3986 §5.2.4', () => {
    const segment = fc.constantFrom('.', '..', '.a', '..a', 'b', 'c.d', '...', '');
    fc.assert(
      fc.property(fc.array(segment, { minLength: 1, maxLength: 8 }), (segments) => {
        const path = `/${segments.join('/')}`;
        assert.equal(parseUrl(`https://h.example${path}`)?.pathname, removeDotSegments(path));
      }),
      { numRuns: 2000 },
    );
  });

  it('does not change opaque paths, queries and fragments', () => {
    assert.equal(parseUrl('urn:a/.b/../c')?.href, 'urn:a/.b/../c');
    assert.equal(
      parseUrl('https://a.b/?/.x/../y#/.x/../y')?.href,
      'https://a.b/?/.x/../y#/.x/../y',
    );
  });
});

/** The algorithm as the RFC writes it. */
function removeDotSegments(path: string): string {
  let input = path;
  let output = '';
  while (input !== '') {
    if (input.startsWith('/./')) input = input.slice(2);
    else if (input === '/.') input = '/';
    else if (input.startsWith('/../') || input === '/..') {
      input = input === '/..' ? '/' : input.slice(3);
      output = output.slice(0, Math.max(0, output.lastIndexOf('/')));
    } else {
      const next = input.indexOf('/', 1);
      const end = next === -1 ? input.length : next;
      output += input.slice(0, end);
      input = input.slice(end);
    }
  }
  return output;
}
