import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Debouncer } from '../../../src/discovery/changes.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('a burst of changes', () => {
  const setUp = (windowMs = 100) => {
    const clock = new TestClock();
    const debouncer = new Debouncer<string>(windowMs, clock);
    const told: string[] = [];
    const change = (key: string, value: string): void => {
      const merge = (one: string, other: string): string => `${one}+${other}`;
      const later = async (all: string): Promise<void> => void told.push(`later ${all}`);
      if (debouncer.begins(key, value, merge, later)) told.push(value);
    };
    return { clock, told, change, debouncer };
  };

  it('yields the first change at once, and all others together at the end of the window', () => {
    const { clock, told, change } = setUp();
    for (const value of ['1', '2', '3']) change('a', value);
    assert.deepEqual(told, ['1']);
    clock.advance(99);
    assert.deepEqual(told, ['1']);
    clock.advance(1);
    assert.deepEqual(told, ['1', 'later 2+3']);
  });

  it('continues as long as changes arrive, with one update per window', () => {
    const { clock, told, change } = setUp();
    for (let turn = 0; turn < 100; turn += 1) {
      change('a', 'x');
      clock.advance(10);
    }
    clock.advance(1_000);
    assert.equal(told.length, 11, told.join());
    assert.equal(clock.waiting, 0, 'nothing is left behind');
    change('a', 'new');
    assert.equal(told.at(-1), 'new');
  });

  it('affects one topic: others are not delayed, and without a window nothing is', () => {
    const { told, change } = setUp();
    change('a', '1');
    change('b', '2');
    assert.deepEqual(told, ['1', '2']);
    const { told: all, change: changeAtOnce } = setUp(0);
    changeAtOnce('a', '1');
    changeAtOnce('a', '2');
    assert.deepEqual(all, ['1', '2']);
  });

  it('is not delayed if there are too many topics: 10,000 at a time', () => {
    const { clock, told, change } = setUp();
    for (let key = 0; key < 10_001; key += 1) change(`${key}`, 'x');
    change('10000', 'again');
    assert.equal(told.length, 10_002);
    assert.equal(clock.waiting, 10_000);
  });

  it('ends early on shutdown, and no new one begins then', async () => {
    const { clock, told, change, debouncer } = setUp();
    for (const value of ['1', '2', '3']) change('a', value);
    change('b', 'alone');
    await debouncer.close();
    assert.deepEqual(told, ['1', 'alone', 'later 2+3']);
    change('a', '4');
    change('a', '5');
    clock.advance(1_000);
    assert.deepEqual(told.slice(3), ['4', '5']);
  });
});
