import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sorted, texts } from '../../../src/directives/file-server/listing.ts';
import { completed, SLICE_STEPS, unmetered } from '../../../src/kernel/slices.ts';

describe('a listing of 10,000 entries', () => {
  const numbers = Array.from({ length: 10_000 }, (_, n) => ({ key: (n * 7919) % 5003, n }));
  const compare = (a: { key: number }, b: { key: number }): number => a.key - b.key;

  it('is sorted in slices, as in one go', () => {
    const meter = { left: SLICE_STEPS };
    const steps = sorted(numbers, compare, meter);
    let slices = 1;
    let result = steps.next();
    for (; result.done !== true; slices += 1) {
      assert.ok(meter.left > -SLICE_STEPS, `${meter.left} steps are left`);
      meter.left = SLICE_STEPS;
      result = steps.next();
    }
    assert.ok(slices >= 10, `${slices} slices`);
    assert.deepEqual(result.value, [...numbers].sort(compare));
  });

  it('sorts few as many', () => {
    for (const length of [0, 1, 499, 500, 501, 1501]) {
      const some = numbers.slice(0, length);
      assert.deepEqual(completed(sorted(some, compare, unmetered())), [...some].sort(compare));
    }
  });

  it('is written in slices', () => {
    const meter = { left: SLICE_STEPS };
    const steps = texts(numbers, ({ n }) => String(n), meter);
    let slices = 1;
    for (; steps.next().done !== true; slices += 1) meter.left = SLICE_STEPS;
    assert.ok(slices >= 10, `${slices} slices`);
  });
});
