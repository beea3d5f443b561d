import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Gathered } from '../../../src/transports/postgres/postgres-presence.ts';

describe('requests that are gathered', () => {
  it('form the next one while one is being answered, within a limit', async () => {
    const asked: (readonly number[])[] = [];
    const gathered = new Gathered(async (items: readonly number[]) => {
      asked.push(items);
      await new Promise((resolve) => setImmediate(resolve));
      return items.map((item) => item * 10);
    }, 3);
    const results = await Promise.all([
      gathered.ask([1]),
      gathered.ask([2]),
      gathered.ask([3, 4]),
      gathered.ask([5]),
      gathered.ask([]),
      gathered.ask([6, 7, 8, 9]),
    ]);
    assert.deepEqual(asked, [[1], [2, 3, 4], [5], [6, 7, 8, 9]]);
    assert.deepEqual(results, [[10], [20], [30, 40], [50], [], [60, 70, 80, 90]]);
  });

  it('fail together, and only those', async () => {
    const gathered = new Gathered(async (items: readonly string[]) => {
      if (items.includes('bad')) throw new Error('bad');
      return items;
    }, 10);
    const first = gathered.ask(['first']);
    const [one, two] = [gathered.ask(['good']), gathered.ask(['bad'])];
    assert.deepEqual(await first, ['first']);
    await assert.rejects(one, /bad/);
    await assert.rejects(two, /bad/);
    assert.deepEqual(await gathered.ask(['again']), ['again']);
  });
});
