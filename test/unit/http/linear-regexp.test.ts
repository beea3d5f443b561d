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

  it('is not searched for groups by wildcards', () => {
    const searches = mock.method(RE2JS.prototype, 'matcher');
    const matches = compileWildcard('/a/*/b/*.php', 'any');
    assert.ok(matches('/a/x/b/y.php'));
    assert.ok(!matches(`/a/${'x'.repeat(70_000)}`));
    assert.equal(searches.mock.callCount(), 0);
    searches.mock.restore();
  });
});
