import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { verdictOf, type WindowCounts } from '../../../src/http/rate-limits.ts';

const WINDOW = 1_000;
const verdict = (current: number, previous: number, elapsedMs: number, events: number) =>
  verdictOf({ current, previous, elapsedMs }, { events, windowMs: WINDOW });

describe('a sliding window', () => {
  it('counts the previous window in proportion to the part that still lies within', () => {
    assert.deepEqual(verdict(3, 4, 500, 10), { allowed: true, remaining: 4, waitMs: 500 });
    assert.deepEqual(verdict(0, 0, 0, 1), { allowed: true, remaining: 0, waitMs: 1_000 });
    // Half of an event is left of the window before: no whole one is left of ten.
    assert.equal(verdict(8, 1, 500, 10).remaining, 0);
  });

  it('reports when enough of the previous window has expired', () => {
    const { waitMs, ...full } = verdict(0, 10, 0, 10);
    assert.deepEqual(full, { allowed: false, remaining: 0 });
    assert.equal(Math.round(waitMs), 100);
    assert.equal(verdict(4, 10, 0, 10).waitMs, 500);
    assert.equal(verdict(4, 10, 200, 10).waitMs, 300);
    assert.equal(verdict(0, 1, WINDOW - 0.5, 1).waitMs, 1, 'never nothing');
  });

  it('reports when enough of this window has expired, if it is full itself', () => {
    assert.equal(verdict(10, 0, 250, 10).waitMs, 850);
    assert.equal(verdict(5, 0, 100, 1).waitMs, 1_900);
    assert.equal(verdict(20, 0, 0, 11).waitMs, 1_500);
  });

  it('allows no event before the time that it reports', () => {
    const counts = fc.integer({ min: 0, max: 50 });
    fc.assert(
      fc.property(
        counts,
        counts,
        fc.integer({ min: 0, max: WINDOW }),
        fc.integer({ min: 1, max: 50 }),
        (current, previous, elapsedMs, events) => {
          const { allowed, waitMs } = verdict(current, previous, elapsedMs, events);
          if (allowed || waitMs <= 2) return;
          const early = after({ current, previous, elapsedMs }, waitMs - 1);
          assert.equal(verdictOf(early, { events, windowMs: WINDOW }).allowed, false);
        },
      ),
    );
  });
});

/** The counts some time later, where nothing more has come. */
function after({ current, previous, elapsedMs }: WindowCounts, ms: number): WindowCounts {
  const later = elapsedMs + ms;
  if (later <= WINDOW) return { current, previous, elapsedMs: later };
  if (later <= 2 * WINDOW) return { current: 0, previous: current, elapsedMs: later - WINDOW };
  return { current: 0, previous: 0, elapsedMs: 0 };
}
