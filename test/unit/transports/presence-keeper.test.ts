import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { HubgateError } from '../../../src/kernel/error.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { PresenceKeeper, type PresenceStore } from '../../../src/transports/presence-keeper.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('the subscribers of a process whose store is unavailable', () => {
  it('are forgotten when they leave, unless the board may have them', async () => {
    let isAway = false;
    const board = new Set<string>();
    const left: string[] = [];
    const reach = (): void => {
      if (isAway) throw new HubgateError('transport-failed', 'The store is unreachable');
    };
    const store: PresenceStore<string> = {
      atOnce: 500,
      async enter(entries) {
        reach();
        for (const { subscriber } of entries) board.add(subscriber);
        return { lived: true, states: entries.map(() => 'new') };
      },
      async leave(subscribers) {
        reach();
        left.push(...subscribers);
        for (const subscriber of subscribers) board.delete(subscriber);
        return [];
      },
      beat: async () => ({ lived: true, claimed: [] }),
      settle: async () => [],
    };
    const keeper = new PresenceKeeper({
      ...{ store, isAway: () => isAway, clock: new TestClock(), log: silentLogger },
    });
    await keeper.enter('stays', []);
    await keeper.enter('leaves', []);
    isAway = true;
    await assert.rejects(keeper.leave('leaves'), { code: 'transport-failed' });
    for (let nth = 0; nth < 100; nth += 1) {
      await keeper.enter(`passes ${nth}`, []);
      await keeper.leave(`passes ${nth}`);
    }
    await keeper.enter('comes', []);
    isAway = false;
    const announce = await keeper.restore();
    announce();
    assert.deepEqual(left, ['leaves']);
    assert.deepEqual([...board], ['stays', 'comes']);
    await keeper.leave('comes');
    assert.deepEqual([...board], ['stays']);
  });

  it('are entered later if the store refused them without being lost', async () => {
    const clock = new TestClock();
    const board = new Set<string>();
    let isFull = true;
    const store: PresenceStore<string> = {
      atOnce: 500,
      async enter(entries) {
        if (isFull) throw new HubgateError('transport-failed', 'OOM command not allowed');
        for (const { subscriber } of entries) board.add(subscriber);
        return { lived: true, states: entries.map(() => 'new') };
      },
      leave: async () => [],
      beat: async () => ({ lived: true, claimed: [] }),
      settle: async () => [],
    };
    const keeper = new PresenceKeeper({ store, isAway: () => false, clock, log: silentLogger });
    await keeper.enter('comes', []);
    isFull = false;
    clock.advance(60_000);
    await setImmediate();
    assert.deepEqual([...board], ['comes']);
  });
});
