import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compareNaturally, sorted, texts } from '../../../src/directives/file-server/listing.ts';
import { Budget, TURN_STEPS, completed, unlimitedBudget } from '../../../src/kernel/scheduler.ts';

describe('a listing of 10,000 entries', () => {
  const numbers = Array.from({ length: 10_000 }, (_, n) => ({ key: (n * 7919) % 5003, n }));
  const compare = (a: { key: number }, b: { key: number }): number => a.key - b.key;

  it('is sorted in slices, with the same result as in one go', () => {
    const budget = new Budget(TURN_STEPS);
    const steps = sorted(numbers, compare, budget);
    let scheduler = 1;
    let result = steps.next();
    for (; result.done !== true; scheduler += 1) {
      assert.ok(budget.left > -TURN_STEPS, `${budget.left} steps are left`);
      budget.left = TURN_STEPS;
      result = steps.next();
    }
    assert.ok(scheduler >= 10, `${scheduler} slices`);
    assert.deepEqual(result.value, [...numbers].sort(compare));
  });

  it('sorts few entries in the same order as many', () => {
    for (const length of [0, 1, 499, 500, 501, 1501]) {
      const some = numbers.slice(0, length);
      assert.deepEqual(
        completed(sorted(some, compare, unlimitedBudget())),
        [...some].sort(compare),
      );
    }
  });

  it('is written in slices', () => {
    const budget = new Budget(TURN_STEPS);
    const steps = texts(numbers, ({ n }) => String(n), budget);
    let scheduler = 1;
    for (; steps.next().done !== true; scheduler += 1) budget.left = TURN_STEPS;
    assert.ok(scheduler >= 10, `${scheduler} slices`);
  });
});

describe('the natural order of names', () => {
  it('compares numbers by value, and is a consistent order', () => {
    const ordered = [
      '',
      '01',
      '1',
      '1.9',
      '1.10',
      '2',
      '10',
      'a',
      'a01',
      'a1',
      'a1b',
      'a2',
      'a10',
      'b',
    ];
    for (const [at, one] of ordered.entries()) {
      for (const [other, text] of ordered.entries()) {
        const expected = Math.sign(at - other);
        assert.equal(Math.sign(compareNaturally(one, text)), expected, `${one} ${text}`);
      }
    }
  });
});
