import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { coverSubscription, coverTopic } from '../../../src/auth/coverage.ts';
import { compileMatcher, compileSelector, type MatchType } from '../../../src/hub/matcher.ts';
import { parseTopic } from '../../../src/hub/topic.ts';

const BASE = 'https://hub.invalid/.well-known/hub';
const compile = (match: string, matchType: MatchType = 'exact') =>
  compileMatcher({ match, matchType }, BASE, null);
const pattern = (match: string) => compile(match, 'urlpattern');
const BOOK = pattern('https://example.com/books/:id');

describe('whether grants cover a topic', () => {
  const topic = (text: string, ...grants: ReturnType<typeof compile>[]) =>
    coverTopic(grants, parseTopic(text, BASE));

  for (const [text, grants, because] of [
    ['news', [compile('*')], /the grant for everything covers it/],
    ['news', [compile('other'), compile('news')], /the topic "news" covers it/],
    ['https://example.com/books/1', [BOOK], /the pattern "https:.*" covers it/],
  ] as const) {
    it(`${text}: ${because.source}`, () => {
      const { verdict, because: told } = topic(text, ...grants);
      assert.equal(verdict, 'all');
      assert.match(told, because);
    });
  }

  for (const [text, because] of [
    ['http://example.com/books/1', /another scheme than "http"/],
    ['https://example.org/books/1', /another host than "example.org"/],
    ['https://example.com:8443/books/1', /another port than "8443"/],
    ['https://example.com/authors/1', /another path than "\/authors\/1"/],
    ['http://[', /is only for URLs/],
  ] as const) {
    it(`says why a pattern does not cover ${text}`, () => {
      const { verdict, because: told } = topic(text, BOOK);
      assert.equal(verdict, 'none');
      assert.match(told, because);
    });
  }

  it('says if there is no grant, and counts the reasons beyond five', () => {
    assert.equal(topic('news').because, 'the token has no such grant');
    const many = Array.from({ length: 8 }, (_, index) => compile(`topic ${index}`));
    const { because } = topic('news', ...many);
    assert.match(because, /the topic "topic 4" is another; nor do 3 others$/);
    assert.doesNotMatch(because, /topic 5/);
  });
});

describe('whether grants cover a subscription', () => {
  for (const [verdict, subscription, grant, because] of [
    ['all', compile('news'), compile('news'), /covers it/],
    ['all', BOOK, compile('*'), /everything covers it/],
    ['all', BOOK, pattern('https://example.com/books/:id'), /covers it/],
    ['all', compile('https://example.com/books/1'), BOOK, /covers it/],
    ['part', compile('*'), compile('news'), /only if it is also the topic "news"/],
    ['part', BOOK, compile('https://example.com/books/1'), /only if it is also/],
    ['part', pattern('https://example.com/*'), BOOK, /only if it is also the pattern/],
    ['none', BOOK, compile('https://example.com/authors/1'), /does not overlap with it/],
    ['none', BOOK, pattern('https://example.org/*'), /does not overlap with it/],
    ['none', BOOK, pattern('https://example.com/authors/:id'), /does not overlap with it/],
    ['none', compile('news'), compile('other'), /the topic "other" is another/],
    // The same text is not the same matcher.
    [
      'part',
      pattern('https://example.com/books/*'),
      compile('https://example.com/books/*'),
      /only/,
    ],
    ['none', pattern('https://example.com/books/:id'), compile('news'), /does not overlap with it/],
    ['part', BOOK, pattern('https://example.com/*'), /only if it is also the pattern/],
    ['part', pattern('https://*.example.com/books/*'), BOOK, /only if it is also the pattern/],
    ['part', BOOK, pattern('https://*.example.com/books/*'), /only if it is also the pattern/],
    ['part', compile('*'), BOOK, /only if it is also the pattern/],
  ] as const) {
    it(`${verdict}: ${subscription.spec.match} by ${grant.spec.match}`, () => {
      const coverage = coverSubscription([grant], subscription, BASE);
      assert.equal(coverage.verdict, verdict);
      assert.match(coverage.because, because);
    });
  }

  it('names up to five of the grants that overlap it', () => {
    const many = Array.from({ length: 8 }, (_, index) => compile(`topic ${index}`));
    const { verdict, because } = coverSubscription(many, compile('*'), BASE);
    assert.equal(verdict, 'part');
    assert.match(because, /"topic 4"$/);
  });

  it('does not rule out a 0.x template or selector, because it cannot decide on those', () => {
    const template = compileSelector('https://example.org/{id}', true);
    const test = (): boolean => false;
    for (const grant of [template, { kind: 'predicate', spec: null, test } as const]) {
      assert.notEqual(grant.kind, 'exact');
      assert.equal(coverSubscription([grant], BOOK, BASE).verdict, 'part');
      const none = coverSubscription([grant], compile('news'), BASE);
      assert.match(none.because, /is another$/);
    }
    assert.equal(coverSubscription([BOOK], template, BASE).verdict, 'part');
  });

  it('names no grant if there is none', () => {
    const { verdict, because } = coverSubscription([], compile('*'), BASE);
    assert.deepEqual([verdict, because], ['none', 'the token has no such grant']);
  });
});
