import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, it } from 'node:test';
import type { Update } from '../../../src/hub/update.ts';
import { GroupCommit } from '../../../src/transports/group-commit.ts';
import { TestClock } from '../../support/test-clock.ts';

const MIB = 1024 * 1024;

describe('appends that are stored in groups', () => {
  it('are limited to 512 per group, or 4 MiB, or the number that the history keeps', async () => {
    const groups: number[] = [];
    const store = async (group: readonly Update[]): Promise<void> => void groups.push(group.length);
    const many = new GroupCommit(store, new TestClock());
    await Promise.all(Array.from({ length: 1_030 }, () => many.append(update(1))));
    assert.deepEqual(groups.splice(0), [512, 512, 6]);
    const large = new GroupCommit(store, new TestClock());
    await Promise.all([1.5, 1.5, 1.5, 5, 1].map((size) => large.append(update(size * MIB))));
    assert.deepEqual(groups.splice(0), [2, 1, 1, 1]);
    const few = new GroupCommit(store, new TestClock(), 2);
    await Promise.all(Array.from({ length: 5 }, () => few.append(update(1))));
    assert.deepEqual(groups, [2, 2, 1]);
  });

  it('do not wait behind all presence events, which keep their order and are refused first', async () => {
    const groups: string[][] = [];
    const store = async (group: readonly Update[]): Promise<void> => {
      groups.push(group.map(({ id }) => id));
      await turn();
    };
    const commits = new GroupCommit(store, new TestClock());
    const append = (id: string, length: number, presence = true): Promise<void> =>
      commits.append({ ...update(length), id, ...(presence && { presence }) });
    const events = Array.from({ length: 120 }, (_, nth) => append(`e${nth}`, 0.4 * MIB));
    const appends = [append('u0', 3.9 * MIB, false), append('u1', 1, false)];
    const results = await Promise.allSettled(events);
    await Promise.all(appends);
    assert.deepEqual(groups.slice(0, 3), [['e0', 'u0'], ['e1', 'u1'], ['e2']]);
    const stored = groups.flat().filter((id) => id.startsWith('e'));
    assert.deepEqual(
      stored,
      Array.from(stored, (_, nth) => `e${nth}`),
    );
    const refused = results.filter(({ status }) => status === 'rejected').length;
    assert.ok(refused > 0 && refused + stored.length === 120, `${refused} of 120 refused`);
  });

  it('have no more presence events and updates together than the history keeps', async () => {
    const groups: string[][] = [];
    const store = async (group: readonly Update[]): Promise<void> => {
      groups.push(group.map(({ id }) => id));
      await turn();
    };
    const commits = new GroupCommit(store, new TestClock(), 2);
    const ids = ['u0', 'u1', 'e0', 'u2', 'e1', 'e2'];
    const appends = ids.map((id) =>
      commits.append({ ...update(1), id, ...(id.startsWith('e') && { presence: true }) }),
    );
    await Promise.all(appends);
    assert.ok(
      groups.every(({ length }) => length <= 2),
      JSON.stringify(groups),
    );
  });

  it('make room for others when they have waited too long', async () => {
    const clock = new TestClock();
    let storing: () => void = () => {};
    const store = (): Promise<void> => new Promise((resolve) => (storing = resolve));
    const commits = new GroupCommit(store, clock);
    const refusals: unknown[] = [];
    const append = (): void => {
      commits.append(update(20 * MIB)).catch((error: unknown) => refusals.push(String(error)));
    };
    append();
    await turn();
    await turn();
    for (let round = 0; round < 3; round += 1) {
      refusals.length = 0;
      for (let count = 0; count < 3; count += 1) append();
      await turn();
      assert.deepEqual(refusals, [], 'three times 20 MiB may wait');
      append();
      await turn();
      assert.match(String(refusals), /too many updates are waiting/);
      clock.advance(12_000);
      await turn();
      assert.equal(refusals.filter((one) => /the store is busy/.test(String(one))).length, 3);
    }
    storing();
    await commits.drained();
  });
});

function update(length: number): Update {
  return {
    id: 'u',
    topics: ['t'],
    data: 'x'.repeat(length),
    private: false,
    type: null,
    retry: null,
  };
}
