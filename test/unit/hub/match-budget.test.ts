import { Budget } from '../../../src/kernel/scheduler.ts';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SubscriptionIndex } from '../../../src/hub/subscription-index.ts';
import { compileMatcher, MAX_STREAM_STEPS } from '../../../src/hub/matcher.ts';
import { Subscriber, type SubscriberCallbacks } from '../../../src/hub/subscriber.ts';
import { parseTopic } from '../../../src/hub/topic.ts';
import { wish } from '../../support/core-hub.ts';

const BASE = 'https://hub.invalid/.well-known/hub';
/** What one test may exceed the budget by: it is counted when it is over. */
const LAST_TEST_STEPS = 320_000;

describe('the cost of matching an update (G-452)', () => {
  it('is limited for each stream, whatever the topic and the number of patterns', () => {
    const index = new SubscriptionIndex();
    const streams = 40;
    for (let stream = 0; stream < streams; stream += 1) index.add(expensive(stream));
    const own = subscriber(`/(a+x${'a?'.repeat(20)}.*)`);
    index.add(own);
    const { steps, selected } = select(index, `/${'a'.repeat(2000)}x${'a'.repeat(1900)}`);
    assert.ok(selected.has(own), 'a stream with patterns of a usual kind gets its update');
    assert.ok(
      steps < streams * (MAX_STREAM_STEPS + LAST_TEST_STEPS) + MAX_STREAM_STEPS,
      `${steps} steps`,
    );
  });

  it('is limited for an update with many topics too, each of whose tests is cheap', () => {
    const index = new SubscriptionIndex();
    const streams = 10;
    for (let stream = 0; stream < streams; stream += 1) {
      const patterns = Array.from({ length: 90 }, (_, count) => `/:x-:y{q${stream * 90 + count}}?`);
      index.add(subscriber(...patterns));
    }
    const own = subscriber('/x-a-a-a-a-a-a-a-a-999');
    index.add(own);
    const topics = Array.from({ length: 1000 }, (_, count) => `/x${'-a'.repeat(8)}-${count}`);
    const { steps, selected } = select(index, ...topics);
    assert.ok(selected.has(own));
    const walked = 900 * topics.length * 25;
    assert.ok(steps < streams * 11 * MAX_STREAM_STEPS + walked, `${steps} steps`);
  });

  it('does not keep an update with many topics from a stream with many usual patterns', () => {
    const index = new SubscriptionIndex();
    const patterns = Array.from({ length: 100 }, (_, count) => `/books/:id/:part${count}`);
    const own = subscriber(...patterns);
    index.add(own);
    const topics = Array.from({ length: 100 }, (_, count) => `/books/${count}/chapters/5`);
    assert.ok(select(index, ...topics, '/books/1/chapters').selected.has(own));
  });

  it('is very low if the patterns are literals and wildcards', () => {
    const index = new SubscriptionIndex();
    for (let stream = 0; stream < 40; stream += 1) {
      const patterns = Array.from(
        { length: 100 },
        (_, count) => `/*a*a*a*a*a*a*a*a*b${stream * 100 + count}`,
      );
      index.add(subscriber(...patterns));
    }
    const { steps, selected } = select(index, `/${'a'.repeat(3900)}`);
    assert.equal(selected.size, 0);
    assert.ok(steps < 200_000, `${steps} steps`);
  });

  it('is charged to one of the streams with the same pattern, and to another when the first has used its share', () => {
    const index = new SubscriptionIndex();
    const shared = `/(a+)x${'(a|c)*'.repeat(3)}`;
    const [spender, other] = [expensive(1, shared), subscriber(shared)];
    index.add(spender);
    index.add(other);
    const { selected } = select(index, `/${'a'.repeat(500)}x${'a'.repeat(500)}`);
    assert.ok(selected.has(other));
  });
});

/** A stream whose patterns have no literal that the topics lack, and differ from those of others. */
function expensive(number: number, ...more: readonly string[]): Subscriber {
  const patterns = Array.from(
    { length: 100 - more.length },
    (_, count) => `/(${'(?:a|aa)*'.repeat(8)}x(?:a|aa)*[b-y]${number}?${'c?'.repeat(count)})`,
  );
  return subscriber(...patterns, ...more);
}

function subscriber(...patterns: readonly string[]): Subscriber {
  const matchers = patterns.map((match) =>
    compileMatcher({ match, matchType: 'urlpattern' }, BASE, null),
  );
  const callbacks: SubscriberCallbacks = { drained() {}, closed() {}, expired() {} };
  return new Subscriber(wish({ matchers }), 0, 0, callbacks);
}

function select(index: SubscriptionIndex, ...topics: readonly string[]) {
  const budget = new Budget(1e12);
  const selected = new Set<Subscriber>();
  const parsed = topics.map((topic) => parseTopic(topic, BASE));
  for (const set of index.select(parsed, budget)) for (const one of set ?? []) selected.add(one);
  return { steps: 1e12 - budget.left, selected };
}
