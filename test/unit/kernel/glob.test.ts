import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compileGlob, isGlob } from '../../../src/kernel/glob.ts';

const cases: readonly (readonly [string, readonly string[], readonly string[]])[] = [
  ['', [''], ['a']],
  ['/a/*/b', ['/a/x/b', '/a//b'], ['/a/x/y/b', '/a/b']],
  ['/a/*/b/*', ['/a/x/b/', '/a/x/b/c'], ['/a/x/b/c/d', '/a/x/y/b/c']],
  ['*a*b', ['ab', 'xaxb', 'aab', 'abab'], ['a/b', 'ba', 'abc']],
  ['*/*a', ['/a', 'x/ya', 'x/aa'], ['a', 'x/y/a']],
  ['a?c', ['abc', 'a😀c'], ['ac', 'a/c', 'abbc']],
  ['[a-cx]', ['a', 'b', 'c', 'x'], ['d', '-', 'ab', '']],
  ['[^a-c]', ['d', '😀'], ['a', '/', '']],
  ['[\\]a]', [']', 'a'], ['\\']],
  ['a\\*', ['a*'], ['ab', 'a\\*']],
  ['a(b)*.+', ['a(b).+', 'a(b)c.+'], ['ab', 'a(b)cc']],
];

describe('globs', () => {
  for (const [pattern, like, unlike] of cases) {
    it(`${pattern} has the same meaning as in path.Match of Go`, () => {
      const matches = compileGlob([{ text: pattern, isLiteral: false }]);
      for (const text of like) assert.ok(matches(text), text);
      for (const text of unlike) assert.ok(!matches(text), text);
    });
  }

  it('can include literal pieces', () => {
    const matches = compileGlob([
      { text: '/*/', isLiteral: false },
      { text: '[*?\\', isLiteral: true },
      { text: '*', isLiteral: false },
    ]);
    assert.ok(matches('/a/[*?\\b'));
    assert.ok(!matches('/a/xyz'));
  });

  it('are refused if they are malformed', () => {
    for (const pattern of ['[', '[]', '[a', '[a-]', '[-a]', 'a\\', '[^]']) {
      assert.equal(isGlob(pattern), false, pattern);
      assert.throws(() => compileGlob([{ text: pattern, isLiteral: false }]));
    }
  });
});
