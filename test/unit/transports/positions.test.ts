import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Positions } from '../../../src/transports/delivered-position.ts';

describe('positions in a history that loses its end', () => {
  it('only grow, and keep what both versions share', () => {
    const positions = new Positions();
    positions.rewind(5, 10);
    assert.deepEqual([5, 6, 7].map(at), [5, 11, 12]);
    assert.deepEqual([4, 5, 10, 11].map(after), [5, 6, 6, 7]);
    // Of what replaced the first end, its first entry alone is kept.
    positions.rewind(6, 13);
    assert.deepEqual([5, 6, 7].map(at), [5, 11, 14]);
    assert.deepEqual([5, 10, 11, 13, 14].map(after), [6, 6, 7, 7, 8]);
    // All of it is lost, and more.
    positions.rewind(3, 20);
    assert.deepEqual([3, 4].map(at), [3, 21]);
    assert.deepEqual([2, 3, 20, 21].map(after), [3, 4, 4, 5]);

    function at(stored: number): number {
      return positions.seen(stored);
    }
    function after(seen: number): number {
      return positions.after(seen);
    }
  });

  it('restart if everything is lost', () => {
    const positions = new Positions();
    positions.rewind(0, 7);
    assert.equal(positions.seen(1), 8);
    assert.equal(positions.after(7), 1);
    assert.equal(positions.after(0), 1);
  });
});
