import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { wish } from '../../support/core-hub.ts';
import { compileSelector } from '../../../src/hub/matcher.ts';
import { Subscriber } from '../../../src/hub/subscriber.ts';
import { SubscriptionIndex } from '../../../src/hub/subscription-index.ts';
import { parseTopic } from '../../../src/hub/topic.ts';
import { Budget, unlimitedBudget } from '../../../src/kernel/scheduler.ts';

const BASE = 'https://hub.example/';
const keeper = { drained() {}, closed() {}, expired() {} };

function subscriberTo(...selectors: readonly string[]): Subscriber {
  const options = wish({
    matchers: selectors.map((selector) => compileSelector(selector, true)),
  });
  return new Subscriber(options, 0, 0, keeper);
}

function reached(
  index: SubscriptionIndex,
  topic: string,
  budget = unlimitedBudget(),
): Subscriber[] {
  const sets = [...index.select([parseTopic(topic, BASE)], budget)];
  return sets.flatMap((set) => (set === null ? [] : [...set]));
}

describe('the index of URI Templates (0.x)', () => {
  it('finds the subscribers to a template until they leave', () => {
    const index = new SubscriptionIndex();
    const [one, two] = [subscriberTo('urn:a:{id}'), subscriberTo('urn:a:{id}', 'urn:{+rest}')];
    index.add(one);
    index.add(two);
    assert.deepEqual(reached(index, 'urn:a:1'), [one, two, two]);
    assert.deepEqual(reached(index, 'urn:b/1'), [two]);
    assert.deepEqual(reached(index, 'urn:a:{id}'), [one, two]);
    index.delete(two);
    assert.deepEqual(reached(index, 'urn:a:1'), [one]);
    index.delete(one);
    assert.deepEqual(reached(index, 'urn:a:1'), []);
  });

  it('pauses when the budget is used up, and then continues', () => {
    const index = new SubscriptionIndex();
    const all = Array.from({ length: 50 }, (_, number) => subscriberTo(`urn:{id}:${number}`));
    for (const subscriber of all) index.add(subscriber);
    const budget = new Budget(100);
    let stops = 0;
    for (const set of index.select([parseTopic('urn:x:49', BASE)], budget)) {
      if (set === null) {
        stops += 1;
        budget.left = 100;
      } else assert.deepEqual([...set], all.slice(49));
    }
    assert.ok(stops > 5, `${stops}`);
  });
});
