import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  type Grants,
  type JsonValue,
  mayReceive,
  NO_GRANTS,
  payloadFor,
  type SubscribeGrant,
} from '../../../src/hub/grants.ts';
import {
  compileMatcher,
  type SubscriptionMatcher,
  type MatchType,
} from '../../../src/hub/matcher.ts';
import { hubBase, parseTopic } from '../../../src/hub/topic.ts';
import { unlimitedBudget } from '../../../src/kernel/scheduler.ts';
import { resultOf } from '../../support/core-hub.ts';
import { mayPublish } from '../../support/without-pauses.ts';

const BASE = hubBase(null, '/.well-known/hub');
const matcher = (match: string, matchType: MatchType = 'exact'): SubscriptionMatcher =>
  compileMatcher({ match, matchType }, BASE, null);
const topics = (...texts: readonly string[]): ReturnType<typeof parseTopic>[] =>
  texts.map((text) => parseTopic(text, BASE));

const publishes = (...publish: readonly SubscriptionMatcher[]): Grants => ({
  publish,
  subscribe: [],
});
const reads = (...subscribe: readonly SubscribeGrant[]): Grants => ({ publish: [], subscribe });

describe('publishing (D)', () => {
  it('D-317 D-318 D-320 needs a grant on every topic', () => {
    const grants = publishes(matcher('a'));
    assert.ok(mayPublish(grants, topics('a')));
    assert.ok(!mayPublish(grants, topics('b')));
    assert.ok(!mayPublish(grants, topics('a', 'b')));
    assert.ok(!mayPublish(grants, topics('b', 'a')));
  });
  it('D-321 can use different grants for different topics', () => {
    assert.ok(mayPublish(publishes(matcher('a'), matcher('b')), topics('a', 'b')));
  });
  it('D-322 is not granted by a subscribe entry', () => {
    assert.ok(!mayPublish(reads({ matchers: [matcher('*')] }), topics('a')));
  });
  it('D-328 covers a namespace and nothing outside it', () => {
    const grants = publishes(matcher('https://example.com/users/42/*', 'urlpattern'));
    for (const [topic, expected] of [
      ['https://example.com/users/42/x', true],
      ['https://example.com/users/42/a/b', true],
      ['https://example.com/users/42', false],
      ['https://example.com/users/43/x', false],
      ['https://example.com/users/42/../43/x', false],
      ['https://example.com/users/42/%2e%2e/43/x', false],
      ['https://example.com/users/42/..%2f43', true],
      ['https://example.com//other/users/42/x', false],
    ] as const) {
      assert.equal(mayPublish(grants, topics(topic)), expected, topic);
    }
  });
});

describe('reading private updates (D)', () => {
  it('D-329 D-337 D-338 needs a subscribe grant', () => {
    assert.ok(!mayReceive(NO_GRANTS, topics('a')));
    assert.ok(!mayReceive(publishes(matcher('*')), topics('a')));
  });
  it('D-333 D-334 D-335 one topic of the update suffices, canonical or alternate', () => {
    const grants = reads({ matchers: [matcher('alternate')] });
    assert.ok(mayReceive(grants, topics('canonical', 'alternate')));
    assert.ok(mayReceive(grants, topics('alternate', 'canonical')));
    assert.ok(!mayReceive(grants, topics('canonical', 'other')));
  });
});

describe('payloads (D)', () => {
  const payload = (grants: Grants, match: string, matchType: MatchType = 'exact'): JsonValue =>
    resultOf(payloadFor(grants, { match, matchType }, BASE, unlimitedBudget()));

  it('D-340 D-344 come from the first entry that matches the text of the subscription', () => {
    const grants = reads(
      { matchers: [matcher('https://example.com/:id', 'urlpattern')], payload: 1 },
      { matchers: [matcher('https://example.com/a')], payload: 2 },
      { matchers: [matcher('*')], payload: 3 },
    );
    assert.equal(payload(grants, 'https://example.com/a'), 1);
    assert.equal(payload(grants, 'urn:a'), 3);
    const hidden = reads(
      { matchers: [matcher('*')], payload: 0 },
      { matchers: [matcher('a')], payload: 1 },
    );
    assert.equal(payload(hidden, 'a'), 0);
  });
  it('D-341 can come from an exact entry with the same text as a pattern', () => {
    const grants = reads({ matchers: [matcher('/a/:b')], payload: 1 });
    assert.equal(payload(grants, '/a/:b', 'urlpattern'), 1);
  });
  it('D-342 L-24 can come from a pattern entry with the same text, even if that pattern does not match it', () => {
    for (const text of ['https://example.com/bar/:id', '/a/(x+)', '/a{/:b}?']) {
      const grants = reads({ matchers: [matcher(text, 'urlpattern')], payload: 1 });
      assert.equal(payload(grants, text, 'urlpattern'), 1, text);
    }
  });
  it('D-343 are absent if the first entry that applies has none', () => {
    const grants = reads({ matchers: [matcher('a')] }, { matchers: [matcher('*')], payload: 1 });
    assert.equal(payload(grants, 'a'), null);
  });
  it('D-345 do not come from publish entries', () => {
    assert.equal(payload(publishes(matcher('*')), 'a'), null);
  });
  it('D-346 can be false, 0, "", [] and {}', () => {
    for (const value of [false, 0, '', [], {}]) {
      assert.deepEqual(payload(reads({ matchers: [matcher('a')], payload: value }), 'a'), value);
    }
  });
});

describe('removing permissions from a token', () => {
  it('D never allows more, whichever matcher is removed', () => {
    const names = fc.constantFrom('a', 'b', '/x', '/x/y', 'https://e.example/x');
    const patterns = fc.constantFrom('/x', '/:a/*', 'https://e.example/*', '*');
    const list = fc.array(
      fc.oneof(
        names.map((text) => matcher(text)),
        patterns.map((text) => matcher(text, 'urlpattern')),
      ),
      { minLength: 1, maxLength: 4 },
    );
    const property = fc.property(
      list,
      fc.nat(),
      fc.array(names, { minLength: 1, maxLength: 3 }),
      (all, lost, texts) => {
        const fewer = all.filter((_, index) => index !== lost % all.length);
        const update = topics(...texts);
        assert.ok(
          !mayPublish(publishes(...fewer), update) || mayPublish(publishes(...all), update),
        );
        assert.ok(
          !mayReceive(reads({ matchers: fewer }), update) ||
            mayReceive(reads({ matchers: all }), update),
        );
      },
    );
    fc.assert(property, { seed: 7, numRuns: 300 });
  });
});
