import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { evict, type Oldest } from '../../../src/transports/lmdb/stored-history.ts';

describe('the cost of eviction', () => {
  it('is nothing while the oldest known update may stay', () => {
    const log = countedHistory(1, 1000);
    const oldest = entryAt(1);
    assert.deepEqual(evict(log, { size: 1000, maxAgeMs: 0 }, extent(1000), oldest), oldest);
    assert.deepEqual(evict(log, { size: 0, maxAgeMs: 2000 }, extent(1000), oldest), oldest);
    assert.equal(log.looks, 0);
  });

  it('is two reads for each update that is removed', () => {
    const log = countedHistory(1, 1010);
    const oldest = evict(log, { size: 1000, maxAgeMs: 0 }, extent(1010), entryAt(1));
    assert.deepEqual(log.removed, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert.deepEqual(oldest, entryAt(11));
    assert.equal(log.looks, 20);
  });

  it('includes removing older updates by age, whatever the size', () => {
    const log = countedHistory(1, 100);
    evict(log, { size: 0, maxAgeMs: 40 }, extent(100), null);
    assert.equal(log.removed.at(-1), 59);
  });

  it('never includes the update that was just added', () => {
    const log = countedHistory(5, 5);
    evict(log, { size: 0, maxAgeMs: 1 }, { ...extent(5), now: 1000 }, null);
    assert.deepEqual(log.removed, []);
  });

  it('is split into parts after a limit is lowered, so that no publish waits for all of it', () => {
    const log = countedHistory(1, 100_000);
    const oldest = evict(log, { size: 10, maxAgeMs: 0 }, extent(100_000), null);
    assert.equal(log.removed.length, 257);
    evict(log, { size: 10, maxAgeMs: 0 }, extent(100_000), oldest);
    assert.equal(log.removed.length, 514);
  });

  it('stays low when another process has evicted the known updates', () => {
    const log = countedHistory(50, 100);
    evict(log, { size: 45, maxAgeMs: 0 }, extent(100), entryAt(1));
    assert.deepEqual(log.removed, [50, 51, 52, 53, 54, 55]);
  });
});

function extent(newest: number): Parameters<typeof evict>[2] {
  return { newest, updates: newest, now: newest, added: 1 };
}

function entryAt(position: number): Oldest {
  return { position, at: position, before: position - 1 };
}

/** A history whose entries were accepted at the time that is their position. */
function countedHistory(oldest: number, newest: number) {
  const log = {
    looks: 0,
    removed: [] as number[],
    first(from: number): Oldest | null {
      log.looks += 1;
      const position = Math.max(from, (log.removed.at(-1) ?? oldest - 1) + 1);
      return position > newest ? null : entryAt(position);
    },
    firstEvent: (): Oldest | null => null,
    remove(position: number): void {
      log.removed.push(position);
    },
  };
  return log;
}
