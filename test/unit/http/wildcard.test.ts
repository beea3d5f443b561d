import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compileWildcard, type WildcardKind } from '../../../src/http/linear-regexp.ts';

const cases: readonly (readonly [WildcardKind, string, readonly string[], readonly string[]])[] = [
  ['edges', '*', ['', 'a', 'a/b\nc'], []],
  ['edges', 'a*', ['a', 'ab/c'], ['ba', '']],
  ['edges', '*a', ['a', 'b/a'], ['ab']],
  ['edges', '*a*', ['a', 'bab'], ['b']],
  ['edges', 'a*b', ['a*b'], ['ab', 'axb']],
  [
    'any',
    'https://*.example.com',
    ['https://a.example.com', 'https://a/b.example.com'],
    ['https://example.com', 'https://a.example.com.evil', 'https://aXexample.com'],
  ],
  [
    'any',
    'http://localhost:*',
    ['http://localhost:', 'http://localhost:3000'],
    ['http://localhost'],
  ],
];

describe('wildcards', () => {
  for (const [kind, pattern, like, unlike] of cases) {
    it(`${kind}: ${pattern}`, () => {
      const matches = compileWildcard(pattern, kind);
      for (const text of like) assert.ok(matches(text), text);
      for (const text of unlike) assert.ok(!matches(text), text);
    });
  }
});
