import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  type Counted,
  type CountPeers,
  RateLimits,
  type RateZone,
  verdictOf,
} from '../../../src/http/rate-limits.ts';
import { TestClock } from '../../support/test-clock.ts';

const WINDOW = 60_000;

function pass(zone: RateZone, key: string, events: number): boolean {
  const { allowed } = verdictOf(zone.counts(key), { events, windowMs: WINDOW });
  if (allowed) zone.count(key);
  return allowed;
}

/** How many of so many requests pass. */
function passing(zone: RateZone, key: string, events: number, requests: number): number {
  return Array.from({ length: requests }, () => pass(zone, key, events)).filter(Boolean).length;
}

describe('rate limits', () => {
  it('use a sliding window: events from half a window ago count half', () => {
    const clock = new TestClock(WINDOW * 1000);
    const { value: zone } = new RateLimits(clock, null).acquire('z', WINDOW);
    assert.equal(passing(zone, 'a', 10, 30), 10);
    assert.equal(passing(zone, 'b', 10, 1), 1);
    clock.advance(WINDOW);
    assert.equal(passing(zone, 'a', 10, 30), 0);
    clock.advance(WINDOW / 2);
    assert.equal(passing(zone, 'a', 10, 30), 5);
    clock.advance(WINDOW * 2);
    assert.equal(passing(zone, 'a', 10, 30), 10);
  });

  it('report how long to wait, and allow the request after that time', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 50 }),
        fc.array(fc.integer({ min: 0, max: WINDOW }), { minLength: 1, maxLength: 60 }),
        (events, pauses) => {
          const clock = new TestClock(WINDOW * 1000);
          const { value: zone } = new RateLimits(clock, null).acquire('z', WINDOW);
          const quota = { events, windowMs: WINDOW };
          for (const pauseMs of pauses) {
            clock.advance(Math.round(pauseMs / events));
            pass(zone, 'a', events);
            const { allowed, waitMs } = verdictOf(zone.counts('a'), quota);
            if (allowed) continue;
            clock.advance(Math.ceil(waitMs) + 1);
            assert.equal(verdictOf(zone.counts('a'), quota).allowed, true);
          }
        },
      ),
    );
  });

  it('keep existing counts when a client uses ever new keys', () => {
    const clock = new TestClock(WINDOW * 1000);
    const { value: zone } = new RateLimits(clock, null).acquire('z', WINDOW);
    assert.equal(passing(zone, 'a', 3, 3), 3);
    for (let i = 0; i < 100_000; i += 1) zone.count(`key ${i}`);
    assert.equal(pass(zone, 'a', 3), false);
    // The new ones share counts: 1,024 groups have room for 3,072 more events.
    let passed = 0;
    for (let i = 0; i < 10_000; i += 1) if (pass(zone, `new ${i}`, 3)) passed += 1;
    assert.ok(passed <= 3 * 1024, String(passed));
    assert.ok(passed > 0);
    clock.advance(WINDOW);
    assert.equal(pass(zone, 'a', 3), false);
    clock.advance(WINDOW * 2);
    assert.equal(pass(zone, 'new 1', 3), true);
  });

  it('are sent to sibling processes every 100 ms, including the last counts of a window', () => {
    const clock = new TestClock(WINDOW * 1000);
    const [one, two] = peerWorkers();
    const { value: here } = new RateLimits(clock, one).acquire('z', WINDOW);
    const { value: there } = new RateLimits(clock, two).acquire('z', WINDOW);
    assert.equal(passing(here, 'a', 10, 6), 6);
    assert.equal(passing(there, 'a', 10, 2), 2);
    clock.advance(100);
    assert.equal(passing(there, 'a', 10, 6), 2);
    assert.equal(one.told.length, 1);
    clock.advance(WINDOW - 100);
    there.count('b');
    here.counts('b');
    clock.advance(WINDOW);
    assert.equal(here.counts('b').previous, there.counts('b').previous);
  });

  it('do not depend on a system clock that is set', () => {
    const clock = new TestClock(WINDOW * 1000 + 10);
    const { value: zone } = new RateLimits(clock, null).acquire('z', WINDOW);
    assert.equal(passing(zone, 'a', 10, 4), 4);
    clock.advance(WINDOW);
    assert.equal(passing(zone, 'a', 10, 3), 3);
    for (const ms of [-20, -WINDOW, -10 * WINDOW, 20 * WINDOW]) {
      clock.setBy(ms);
      assert.deepEqual(zone.counts('a'), { current: 3, previous: 4, elapsedMs: 10 }, `${ms}`);
    }
    clock.setBy(-50 * WINDOW);
    clock.advance(WINDOW);
    assert.deepEqual(zone.counts('a'), { current: 0, previous: 3, elapsedMs: 10 });
    clock.advance(2 * WINDOW);
    assert.deepEqual(zone.counts('a'), { current: 0, previous: 0, elapsedMs: 10 });
  });

  it('accept counts from siblings for this window or the previous one, and for no other', () => {
    const clock = new TestClock(WINDOW * 1000);
    const [one, two] = peerWorkers();
    const { value: zone } = new RateLimits(clock, two).acquire('z', WINDOW);
    zone.counts('a');
    for (const [window, events] of [
      [1_000, 3],
      [999, 5],
      [998, 7],
      [1_001, 9],
    ] as const) {
      one.notify('z', { window, counts: [['a', events]] });
    }
    assert.deepEqual(zone.counts('a'), { current: 3, previous: 5, elapsedMs: 0 });
  });

  it('are kept as long as there is a lease on them', () => {
    const clock = new TestClock(WINDOW * 1000);
    const limits = new RateLimits(clock, null);
    const old = limits.acquire('z', WINDOW);
    old.value.count('a');
    const next = limits.acquire('z', WINDOW);
    old.release();
    assert.equal(next.value.counts('a').current, 1);
    next.release();
    assert.equal(limits.acquire('z', WINDOW).value.counts('a').current, 0);
  });
});

interface NotifiedPeers extends CountPeers {
  readonly told: Counted[];
}

function peerWorkers(): [NotifiedPeers, NotifiedPeers] {
  const listeners: ((counted: Counted) => void)[] = [];
  const sibling = (other: number): NotifiedPeers => {
    const told: Counted[] = [];
    return {
      told,
      notify: (_, counted) => {
        told.push(counted);
        listeners[other]?.(counted);
      },
      join: (_, listener) => {
        listeners[1 - other] = listener;
        return () => {};
      },
    };
  };
  return [sibling(1), sibling(0)];
}
