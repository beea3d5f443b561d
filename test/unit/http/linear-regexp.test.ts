import assert from 'node:assert/strict';
import { describe, it, mock } from 'node:test';
import { RE2JS } from 're2js';
import { compilePattern, compileWildcard } from '../../../src/http/linear-regexp.ts';

describe('a regular expression in the configuration', () => {
  it('gives the same result with test as with match', () => {
    for (const source of ['a*b', '^/[^/]*a[^/]*b$', '(?i:x|y)+$', '^$', '\\bé']) {
      const pattern = compilePattern(source);
      for (const text of ['', 'ab', '/xaxb', '/a/b', 'zY', ' é', 'aab/']) {
        assert.equal(pattern.test(text), pattern.match(text) !== null, `${source} ${text}`);
      }
    }
  });

  it('is refused for a text whose groups cost too much, but only if it matches', () => {
    // Each repetition has as many instructions as it may have turns.
    const token = compilePattern('([\\w-]{20,256})\\.[\\w-]{20,512}\\.');
    const part = 'a'.repeat(300);
    assert.equal(token.match(`${part}.${part}.`)?.[1], 'a'.repeat(256));
    const long = 'a'.repeat(15_900);
    assert.equal(token.match(long), null);
    assert.throws(() => token.match(`${long}.${part}.`), { status: 431 });
    assert.ok(token.test(`${long}.${part}.`));
  });

  it('does not replace for longer than a moment, and replaces many matches', () => {
    const text = '/a'.repeat(8_000);
    const tail = compilePattern('(/[^/]+)(/.*\\.html)?');
    const cut = tail.replacer('$1');
    assert.equal(cut('/a/b/c.html/d', String), '/a/d');
    assert.throws(() => cut(text, String), { status: 431 });
    assert.throws(() => tail.replacer('$1', 502)(text, String), { status: 502 });
    assert.equal(compilePattern('/+').replacer('-')(text.slice(0, 2_000), String).length, 2_000);
  });

  it('is not searched for groups by wildcards', () => {
    const searches = mock.method(RE2JS.prototype, 'matcher');
    const matches = compileWildcard('/a/*/b/*.php', 'any');
    assert.ok(matches('/a/x/b/y.php'));
    assert.ok(!matches(`/a/${'x'.repeat(70_000)}`));
    assert.equal(searches.mock.callCount(), 0);
    searches.mock.restore();
  });
});
