import assert from 'node:assert/strict';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { open } from 'lmdb';
import type { SubscriptionRecord } from '../../../src/hub/presence.ts';
import type { PresenceChange } from '../../../src/hub/presence-board.ts';
import type { Transport } from '../../../src/hub/transport.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { openLmdbTransport } from '../../../src/transports/lmdb/lmdb-transport.ts';
import { LmdbPresence } from '../../../src/transports/lmdb/lmdb-presence.ts';
import { HEARTBEAT_MS } from '../../../src/transports/presence-keeper.ts';
import { presenceDatabases } from '../../../src/transports/lmdb/lmdb-store.ts';
import { TestClock } from '../../support/test-clock.ts';
import { onBoard } from '../../support/board.ts';
import { removeWith } from '../../support/temporary-directory.ts';

interface Change {
  readonly ids: readonly string[];
  readonly active: boolean;
}

/** A process that shares a history; its clock stands while the process is stopped. */
interface Process {
  readonly clock: TestClock;
  readonly transport: Transport;
  /** What it was told, oldest first. */
  readonly told: readonly Change[];
  /** Resolves with the next change that it is told. */
  next(): Promise<Change>;
}

describe('presence of several processes that share a history', () => {
  it('is one shared board', async (test) => {
    const path = await directory(test);
    const [one, two] = [await start(test, path), await start(test, path)];
    await one.transport.presence.enter('a', [record('a')]);
    two.clock.advance(1);
    await two.transport.presence.enter('b', [record('b')]);
    for (const { transport } of [one, two]) {
      assert.deepEqual(await onBoard(transport.presence), [record('a'), record('b')]);
    }
    await two.transport.close();
    assert.deepEqual(await onBoard(one.transport.presence), [record('a')]);
    assert.deepEqual(one.told, [{ ids: ['a'], active: true }]);
    assert.deepEqual(two.told, [
      { ids: ['b'], active: true },
      { ids: ['b'], active: false },
    ]);
  });

  it('drops a dead process, and notifies exactly one of the others', async (test) => {
    const path = await directory(test);
    const dead = await start(test, path);
    const [one, two] = [await start(test, path), await start(test, path)];
    await dead.transport.presence.enter('a', [record('a')]);
    const first = Promise.race([one.next(), two.next()]);
    await pass(one, 10_000);
    one.clock.advance(4_000);
    assert.deepEqual(await onBoard(one.transport.presence), [record('a')]);
    await pass(one, 5_000);
    await pass(two, 20_000);
    assert.deepEqual(await onBoard(one.transport.presence), []);
    assert.deepEqual(await first, { ids: ['a'], active: false });
    // Whoever has told it writes that down: else the other would take it for gone, and tell it as well.
    await turn();
    for (const { transport } of [one, two]) await transport.presence.leave('nobody');
    for (const process of [one, two]) await pass(process, 20_000);
    assert.equal(one.told.length + two.told.length, 1);
  });

  it('takes no process for dead because the machine was suspended or its clock was set', async (test) => {
    const path = await directory(test);
    const all = [await start(test, path), await start(test, path), await start(test, path)];
    // The last one has no subscriber, and so no lease.
    for (const [nth, id] of ['a', 'b'].entries()) {
      await all[nth]?.transport.presence.enter(id, [record(id)]);
    }
    for (const { clock } of all) clock.setBy(3_600_000);
    for (let beat = 0; beat < 3; beat += 1) {
      for (const process of all.toReversed()) await pass(process, 5_000);
    }
    for (const { transport } of all) {
      const present = (await onBoard(transport.presence)).map(({ match }) => match);
      assert.deepEqual(present.toSorted(), ['a', 'b']);
    }
    const [one, two, none] = all.map(({ told }) => told);
    assert.deepEqual(one, [{ ids: ['a'], active: true }]);
    assert.deepEqual(two, [{ ids: ['b'], active: true }]);
    assert.deepEqual(none, []);
  });

  it('takes no process for dead because a writer has held up the heartbeats of all', async (test) => {
    const path = await directory(test);
    const [one, two] = [await start(test, path), await start(test, path)];
    // It has no subscriber, and so no lease.
    const none = await start(test, path);
    await one.transport.presence.enter('a', [record('a')]);
    await two.transport.presence.enter('b', [record('b')]);
    for (const process of [one, none]) await pass(process, 5_000);
    // Longer than a lease. The heartbeats of this time wait in the queue of transactions.
    for (const process of [none, one, two]) {
      process.clock.advance(20_000);
      await settled(process);
    }
    for (const process of [one, two, none]) {
      await pass(process, 5_000);
      const present = (await onBoard(process.transport.presence)).map(({ match }) => match);
      assert.deepEqual(present.toSorted(), ['a', 'b']);
    }
    assert.deepEqual([one.told.length, two.told.length, none.told.length], [1, 1, 0]);
  });

  it('enters all subscribers of a slow process again, though one arrives before its next heartbeat', async (test) => {
    const path = await directory(test);
    const [slow, other] = [await start(test, path), await start(test, path)];
    await slow.transport.presence.enter('a', [record('a')]);
    const gone = other.next();
    await pass(other, 20_000);
    assert.deepEqual(await gone, { ids: ['a'], active: false });
    await slow.transport.presence.enter('late', [record('late')]);
    const back = slow.next();
    await pass(slow, 5_000);
    assert.deepEqual(await back, { ids: ['a'], active: true });
    const present = (await onBoard(slow.transport.presence)).map(({ match }) => match);
    assert.deepEqual(present.toSorted(), ['a', 'late']);
  });

  it('lets another process announce a departure that the first one failed to announce, as the same event', async (test) => {
    const path = await directory(test);
    const dead = await start(test, path);
    const [failing, other] = [await start(test, path), await start(test, path)];
    await dead.transport.presence.enter('a', [record('a')]);
    const departures: string[] = [];
    const asked = new Promise<void>((resolve) => {
      failing.transport.presence.watch(async (change) => {
        if (!change.active) departures.push(change.name);
        resolve();
        // As a process that ends before it has announced anything.
        await new Promise(() => {});
      });
    });
    other.transport.presence.watch(async (change) => {
      if (!change.active) departures.push(change.name);
    });
    await pass(failing, 20_000);
    await asked;
    assert.deepEqual(await onBoard(other.transport.presence), []);
    await pass(other, 20_000);
    assert.equal(departures.length, 1, 'it has time to do so');
    await pass(other, 20_000);
    while (departures.length < 2) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(departures[0], departures[1]);
    for (let beat = 0; beat < 5; beat += 1) {
      await pass(other, 20_000);
    }
    assert.equal(departures.length, 2);
  });

  it('removes a thousand entries of a dead process in parts, and restores those already removed if it resumes', async (test) => {
    const path = await directory(test);
    const [stopped, other] = [await start(test, path), await start(test, path)];
    const names = Array.from({ length: 600 }, (_, index) => `s${index}`);
    for (const name of names) await stopped.transport.presence.enter(name, [record(name)]);
    // It comes back when the first part has been taken off.
    const back: string[] = [];
    const isBack = ({ records, active }: PresenceChange): boolean => {
      if (active) back.push(...records.map(({ match }) => match));
      return active;
    };
    stopped.transport.presence.watch(async (change) => void isBack(change));
    const gone: string[] = [];
    other.transport.presence.watch(async (change) => {
      // Whoever tells that they have gone tells that they are back.
      if (isBack(change)) return;
      const { records } = change;
      gone.push(...records.map(({ match }) => match));
      if (gone.length > records.length) return;
      await pass(stopped, 20_000);
    });
    await pass(other, 20_000);
    while (gone.length === 0) await new Promise((resolve) => setImmediate(resolve));
    while (back.length < gone.length) await new Promise((resolve) => setImmediate(resolve));
    assert.equal((await onBoard(other.transport.presence)).length, 600);
    assert.deepEqual(
      back.toSorted(),
      gone.toSorted(),
      'who was told to be gone is told to be back',
    );
  });

  it('restores a process that was only paused', async (test) => {
    const path = await directory(test);
    const [stopped, other] = [await start(test, path), await start(test, path)];
    await stopped.transport.presence.enter('a', [record('a')]);
    await stopped.transport.presence.enter('b', [record('b')]);
    const lost = other.next();
    await pass(other, 20_000);
    assert.deepEqual(await lost, { ids: ['a', 'b'], active: false });
    const [before, others] = [stopped.told.length, other.told.length];
    await pass(stopped, 20_000);
    const back = (): readonly Change[] => [
      ...stopped.told.slice(before),
      ...other.told.slice(others),
    ];
    while (back().flatMap(({ ids }) => ids).length < 2) await turn();
    assert.deepEqual(
      back()
        .flatMap(({ ids }) => ids)
        .toSorted(),
      ['a', 'b'],
    );
    assert.ok(back().every(({ active }) => active));
    assert.deepEqual(await onBoard(other.transport.presence), [record('a'), record('b')]);
  });

  it('reads what another process has written, even after a read in the same turn', async (test) => {
    const path = await directory(test);
    const { presence } = (await start(test, path)).transport;
    const reader = (await start(test, path)).transport.presence;
    const other = open({ path: join(path, 'history.mdb'), maxDbs: 10 });
    test.after(() => other.close());
    const lists = other.openDB({ name: 'presence-lists', encoding: 'msgpack' });
    await presence.enter('a', [record('a')]);
    assert.deepEqual(await onBoard(reader), [record('a')]);
    other.transactionSync(() => lists.clearSync());
    assert.deepEqual(await onBoard(reader), []);
  });

  it('removes every client that leaves, however many leave in one turn', async (test) => {
    const { transport } = await start(test, await directory(test));
    const { presence } = transport;
    const names = Array.from({ length: 600 }, (_, index) => `s${index}`);
    await Promise.all(names.map((name) => presence.enter(name, [record(name)])));
    await Promise.all(names.map((name) => presence.leave(name)));
    assert.deepEqual(await onBoard(presence), []);
  });

  it('keeps no client that has left while writes were failing', async (test) => {
    const [root, clock] = [open({ path: await directory(test), maxDbs: 10 }), new TestClock()];
    const presence = new LmdbPresence({
      root,
      databases: presenceDatabases(root),
      clock,
      log: silentLogger,
    });
    test.after(async () => {
      await presence.close();
      await root.close();
    });
    await presence.enter('a', [record('a')]);
    await presence.enter('b', [record('b')]);
    const { childTransaction } = root;
    root.childTransaction = () => Promise.reject(new Error('full'));
    await assert.rejects(presence.leave('a'), { code: 'transport-failed' });
    root.childTransaction = childTransaction;
    assert.deepEqual(await onBoard(presence), [record('a'), record('b')]);
    clock.advance(5_000);
    while ((await onBoard(presence)).length > 1) await new Promise((go) => setImmediate(go));
    assert.deepEqual(await onBoard(presence), [record('b')]);
  });

  it('lasts while its process renews its lease', async (test) => {
    const path = await directory(test);
    const [one, two] = [await start(test, path), await start(test, path)];
    await one.transport.presence.enter('a', [record('a')]);
    for (let seconds = 0; seconds < 60; seconds += 5) {
      await pass(one, 5_000);
      await pass(two, 5_000);
      assert.deepEqual(await onBoard(two.transport.presence), [record('a')]);
    }
    assert.deepEqual(two.told, []);
  });
});

async function directory(test: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'hubgate-presence-'));
  removeWith(test, path);
  return path;
}

/** Lets time pass for a process, and each of its heartbeats be written. */
async function pass(process: Process, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= HEARTBEAT_MS) {
    process.clock.advance(HEARTBEAT_MS);
    await settled(process);
  }
}

/** Resolves when the heartbeats that a process has begun are written: a later transaction is behind them. */
async function settled({ transport }: Process): Promise<void> {
  await turn();
  await transport.presence.leave('nobody');
}

async function start(test: TestContext, path: string): Promise<Process> {
  const clock = new TestClock();
  const transport = await openLmdbTransport({
    ...{ path, size: 0, maxAgeMs: 0, durability: 'async' },
    ...{ clock, log: silentLogger },
  });
  test.after(() => transport.close());
  const told: Change[] = [];
  let wake: (change: Change) => void = () => {};
  transport.presence.watch(async ({ records, active }) => {
    const change = { ids: records.map(({ match }) => match), active };
    told.push(change);
    wake(change);
  });
  return { clock, transport, told, next: () => new Promise((resolve) => (wake = resolve)) };
}

function record(match: string): SubscriptionRecord {
  return {
    id: `/hub/subscriptions/exact/${match}/s`,
    type: 'subscription',
    subscriber: 's',
    match,
    match_type: 'exact',
    active: true,
  };
}
