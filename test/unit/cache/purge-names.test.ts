import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { purgeName } from '../../../src/cache/cache-key.ts';

describe('the names by which stored responses are purged', () => {
  it('are the same, however a URL is spelled', () => {
    for (const [first, second] of [
      ['https://a.example/caf%c3%a9', 'https://a.example/caf%C3%A9'],
      ['https://a.example/caf%C3%A9', 'https://a.example/café'],
      ['https://a.example/%7Eada', 'https://a.example/~ada'],
      ['https://A.example:443/x', 'https://a.example/x'],
      ['http://a.example/x', 'https://a.example/x'],
      ['/caf%c3%a9', '/caf%C3%A9'],
      ['/café?q=é', '/caf%C3%A9?q=%C3%A9'],
      ['/two words', '/two%20words'],
      ['//a.example/caf%c3%a9', 'https://a.example/café'],
    ] as const) {
      assert.equal(purgeName(first), purgeName(second), `${first} ${second}`);
    }
  });

  it('differ for different URLs and tags', () => {
    const texts = [
      'https://a.example/x',
      'https://a.example/X',
      'https://b.example/x',
      '/a%2Fb',
      '/a/b',
      '/a#b',
      '//a/b',
      '/\\a/b',
      'x%c3',
      'x%C3',
    ];
    assert.equal(new Set(texts.map(purgeName)).size, texts.length);
  });
});
