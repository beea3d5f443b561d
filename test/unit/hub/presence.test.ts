import { Budget } from '../../../src/kernel/scheduler.ts';
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { wish } from '../../support/core-hub.ts';
import { compileSelector } from '../../../src/hub/matcher.ts';
import { subscriptionRecords } from '../../../src/hub/presence.ts';
import { profiles } from '../../../src/hub/profile.ts';
import { Subscriber } from '../../../src/hub/subscriber.ts';

describe('the records of a subscriber', () => {
  it('are created in slices if its matchers are many and long', () => {
    const matchers = Array.from({ length: 100 }, (_, n) =>
      compileSelector(`${n}${'é'.repeat(2000)}`, false),
    );
    const options = wish({ matchers }, { announced: true });
    const keeper = { drained() {}, closed() {}, expired() {} };
    const subscriber = new Subscriber(options, 0, 0, keeper);
    const names = { profile: profiles.hub, hubPath: '/hub', base: 'https://hub.example/hub' };
    const budget = new Budget(10_000);
    const steps = subscriptionRecords(subscriber, names, budget);
    let scheduler = 1;
    for (; steps.next().done !== true; scheduler += 1) budget.left = 100_000;
    assert.ok(scheduler >= 5, `${scheduler} slices`);
  });
});
