import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { SubscriptionRecord } from '../../../src/hub/presence.ts';
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

describe('a subscriber that leaves while it is entered on the board', () => {
  const slowStore = () => {
    const answers: (() => void)[] = [];
    let isAway = false;
    const [settled, left]: string[][] = [[], []];
    const store: PresenceStore<string> = {
      atOnce: 500,
      async enter(entries) {
        await new Promise<void>((resolve) => answers.push(resolve));
        return { lived: true, states: entries.map(() => 'new') };
      },
      async leave(subscribers, name) {
        if (isAway) throw new HubgateError('transport-failed', 'The store is unreachable');
        left?.push(...subscribers);
        return subscribers.map((key) => ({ key, name, active: false, records: [] }));
      },
      beat: async () => ({ lived: true, claimed: [] }),
      async settle(claims) {
        settled?.push(...claims.map(({ key }) => key));
        return [];
      },
    };
    const keeper = new PresenceKeeper({
      ...{ store, isAway: () => isAway, clock: new TestClock(), log: silentLogger },
    });
    const announced: boolean[] = [];
    keeper.watch(async ({ active }) => void announced.push(active));
    return {
      ...{ keeper, announced, settled, left },
      answer: () => answers.splice(0).forEach((go) => go()),
      setAway: (away: boolean) => void (isAway = away),
    };
  };

  it('is taken off without an announcement, because nobody was told of it', async () => {
    const { keeper, announced, settled, left, answer } = slowStore();
    const entering = keeper.enter('brief', []);
    const leaving = keeper.leave('brief');
    answer();
    await Promise.all([entering, leaving]);
    assert.deepEqual([announced, settled, left], [[], ['brief'], ['brief']]);
    const staying = keeper.enter('stays', []);
    answer();
    await staying;
    await keeper.leave('stays');
    assert.deepEqual(announced, [true, false]);
    await keeper.close();
  });

  it('is taken off in the same way later if the store is unavailable', async () => {
    const { keeper, announced, settled, answer, setAway } = slowStore();
    const entering = keeper.enter('brief', []);
    const leaving = keeper.leave('brief');
    setAway(true);
    answer();
    await entering;
    await assert.rejects(leaving, { code: 'transport-failed' });
    setAway(false);
    (await keeper.restore())();
    await setImmediate();
    assert.deepEqual([announced, settled], [[], ['brief']]);
    const last = keeper.enter('last', []);
    const closing = keeper.close();
    answer();
    await Promise.all([last, closing]);
    assert.deepEqual(announced, [true, false], 'the arrival was announced before the end');
  });
});

describe('subscribers with very many records', () => {
  const record: SubscriptionRecord = {
    ...{ id: '/hub/subscriptions/exact/m/s', type: 'subscription', subscriber: 's' },
    ...{ match: 'm', match_type: 'exact', active: true },
  };
  const records = Array.from({ length: 100 }, () => record);

  it('are entered and removed in small steps, so that the store can answer in time', async () => {
    const steps: number[] = [];
    let isAway = true;
    const store: PresenceStore<string> = {
      atOnce: 500,
      async enter(entries) {
        if (isAway) throw new HubgateError('transport-failed', 'The store is unreachable');
        steps.push(entries.length);
        return { lived: true, states: entries.map(() => 'there') };
      },
      async leave(subscribers) {
        steps.push(subscribers.length);
        return [];
      },
      beat: async () => ({ lived: true, claimed: [] }),
      settle: async () => [],
    };
    const keeper = new PresenceKeeper({
      ...{ store, isAway: () => isAway, clock: new TestClock(), log: silentLogger },
    });
    for (let nth = 0; nth < 12; nth += 1) await keeper.enter(`large ${nth}`, records);
    for (let nth = 0; nth < 12; nth += 1) await keeper.enter(`small ${nth}`, [record]);
    isAway = false;
    await keeper.restore();
    assert.deepEqual(steps, [5, 5, 14]);
    await keeper.close();
    assert.deepEqual(steps, [5, 5, 14, 5, 5, 14]);
  });

  it('are taken over from a dead process a few at a time', async () => {
    const clock = new TestClock();
    const asked: number[] = [];
    const dead = { left: 100 };
    const store: PresenceStore<string> = {
      atOnce: 500,
      enter: async () => assert.fail('nobody is here'),
      leave: async () => [],
      async beat(name, _renews, most) {
        asked.push(most);
        const count = Math.min(most, dead.left);
        dead.left -= count;
        const claim = { key: 'k', name, active: false };
        return {
          lived: true,
          claimed: Array.from({ length: count }, (_, nth) => ({
            ...claim,
            // The first ones are small.
            records: dead.left + nth > 60 ? [record] : records,
          })),
        };
      },
      settle: async () => [],
    };
    const keeper = new PresenceKeeper({ store, isAway: () => false, clock, log: silentLogger });
    clock.advance(5_000);
    while (dead.left > 0) await setImmediate();
    await keeper.close();
    assert.deepEqual(asked.slice(0, 5), [8, 32, 32, 8, 2]);
  });
});
