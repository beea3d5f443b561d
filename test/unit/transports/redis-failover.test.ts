import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DeliveredPosition } from '../../../src/transports/delivered-position.ts';
import { findLostEnd } from '../../../src/transports/lost-entries.ts';
import type { Session } from '../../../src/transports/redis/session.ts';
import type { StoredHistory } from '../../../src/transports/redis/stored-history.ts';
import { update } from '../../support/lmdb-files.ts';

function deliveredUpTo(position: number): DeliveredPosition {
  const delivered = new DeliveredPosition();
  delivered.beginAt({ position, key: `k${position}`, id: `u${position}`, updateId: null });
  return delivered;
}

describe('a history on a server that loses its end', () => {
  it('goes back to the end of the history, though nothing is known about it', async () => {
    const log = {
      end: async () => ({ position: 0, key: null, id: null }),
      newest: () => assert.fail('it is empty'),
    } as unknown as StoredHistory;
    const lost = await findLostEnd({} as unknown as Session, log, deliveredUpTo(500));
    assert.deepEqual(lost, { common: 0, lost: 500, replaced: 0 });
  });

  it('finds the shared part, though presence events are evicted on both sides of it', async () => {
    const delivered = deliveredUpTo(0);
    const entryAt = (position: number, key = `k${position}`) => ({
      ...{ position, key, previous: '', at: 0, update: update(`u${position}`) },
    });
    delivered.advance(Array.from({ length: 100 }, (_, index) => entryAt(index + 1)));
    for (const [common, top] of [
      [60, 90],
      [60, 100],
      [60, 120],
      [99, 130],
      [1, 100],
    ] as const) {
      for (const gaps of [[], [40, 59], [61, 89], [30, 88], [2, 98]]) {
        const [from = 0, to = 0] = gaps;
        const kept = Array.from({ length: top }, (_, index) => index + 1)
          .filter((position) => position < from || position > to)
          .map((position) =>
            entryAt(position, position > common ? `n${position}` : `k${position}`),
          );
        const last = kept.at(-1);
        const log = {
          end: async () => ({ position: top, key: last?.key ?? null, id: null, updateId: null }),
          newest: async (
            _session: unknown,
            [first, end]: readonly [number, number],
            limit: number,
          ) => kept.filter(({ position }) => position >= first && position <= end).slice(-limit),
          page: async (_session: unknown, [first, end]: readonly [number, number], limit: number) =>
            kept.filter(({ position }) => position >= first && position <= end).slice(0, limit),
        } as unknown as StoredHistory;
        const lost = await findLostEnd({} as unknown as Session, log, delivered);
        // What is evicted on the border could have been either: nobody gets it any more.
        const isOpen = from <= common + 1 && to > common;
        const highest = isOpen ? Math.min(to, 100) : common;
        assert.ok(lost !== null, `${common} ${top} ${gaps.join()}`);
        assert.ok(lost.common >= common && lost.common <= highest, `${lost.common} ${common}`);
      }
    }
  });
});
