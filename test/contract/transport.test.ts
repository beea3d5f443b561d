import assert from 'node:assert/strict';
import { setTimeout as after } from 'node:timers/promises';
import { describe, it, type TestContext } from 'node:test';
import type { SubscriptionRecord } from '../../src/hub/presence.ts';
import {
  type HistoryEntry,
  type Missed,
  PAGE_BYTES,
  type Transport,
  NO_TAIL,
} from '../../src/hub/transport.ts';
import { MAX_ID_BYTES, type Update } from '../../src/hub/update.ts';
import { codeOf } from '../../src/kernel/error.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { type Implementation, implementations, type TestHistory } from './transports.ts';
import { onBoard } from '../support/board.ts';
import { TestClock } from '../support/test-clock.ts';
import { follow } from '../support/follow.ts';

/** What a transport may hand out at once: no listener is called with more. */
const ENTRIES_AT_ONCE = 512;
/** Larger than any free space inside a small store. */
const LARGE = 'x'.repeat(2 * 1024 * 1024);

for (const implementation of implementations) {
  const { name, isShared, hasAge, keptEvents } = implementation;

  describe(`transport ${name}: order`, () => {
    it('delivers every append in order, then resolves it', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const seen = collect(transport);
      await transport.append(update('a'));
      assert.deepEqual(ids(seen), ['a']);
      const many = Array.from({ length: 1000 }, (_, index) => `m${index}`);
      await Promise.all(many.map((id) => transport.append(update(id))));
      assert.deepEqual(ids(seen), ['a', ...many]);
      assert.deepEqual(
        seen.map(({ position }) => position),
        Array.from({ length: 1001 }, (_, index) => index + 1),
      );
    });

    it('adds updates once by their ids, with two openings at the same time, all in order or none', async (test) => {
      const log = await implementation.log(test, { size: 1000 });
      if (log === null) return;
      const one = await log.open();
      const other = isShared ? await log.open() : one;
      test.after(() => Promise.all([one.close(), other.close()]));
      const seen = collect(one);
      await one.append(update('b'));
      await one.appendOnce([]);
      const wanted = ['a', 'b', 'c', 'a', 'd'].map(update);
      await Promise.all([
        one.appendOnce(wanted),
        one.append(update('x')),
        other.appendOnce(wanted),
      ]);
      await one.appendOnce(wanted);
      await one.append(update('b'));
      while (seen.length < 6) await after(10);
      const found = ids(seen).filter((id) => id !== 'x');
      assert.deepEqual(found, ['b', 'a', 'c', 'd', 'b']);
      assert.equal((await one.read(0, 10)).length, 6);
    });

    it('knows its position and last event id, which are empty before the first update', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      assert.equal(transport.position, 0);
      assert.equal(transport.lastEventId, null);
      await transport.append(update('a'));
      assert.equal(transport.position, 1);
      assert.equal(transport.lastEventId, 'a');
    });

    it('returns every field of an update unchanged', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const full: Update = {
        id: 'urn:uuid:1',
        topics: ['https://example.com/é', 'b c'],
        data: 'line\r\nline\0\u{1F600}',
        private: true,
        type: 'message',
        retry: '18446744073709551615',
      };
      await transport.append(full);
      await transport.append(update('plain'));
      const entries = await transport.read(0, 2);
      assert.deepEqual(entries, [
        { position: 1, update: full },
        { position: 2, update: update('plain') },
      ]);
    });

    it('B-181 B-193: switches from replay to live without gap or duplicate while others publish', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const total = 400;
      const live: HistoryEntry[][] = [];
      const replays: HistoryEntry[][] = [[], [], []];
      const joined = replays.map(() => false);
      follow(transport, (entries) => {
        for (const [index, replay] of replays.entries()) {
          if (joined[index] === true) replay.push(...entries);
        }
        live.push([...entries]);
      });
      const publishing = (async () => {
        for (let index = 0; index < total; index += 10) {
          await Promise.all(
            Array.from({ length: 10 }, (_, more) => transport.append(update(`u${index + more}`))),
          );
        }
      })();
      const reading = replays.map(async (replay, index) => {
        let position = 0;
        while (position < transport.position || position === 0) {
          const entries = await transport.read(position, 7);
          replay.push(...entries);
          position = entries.at(-1)?.position ?? position;
          if (entries.length === 0) await new Promise((resolve) => setImmediate(resolve));
        }
        // In this same turn, as the hub does it.
        joined[index] = true;
      });
      await Promise.all([publishing, ...reading]);
      for (const replay of replays) assert.deepEqual(replay, live.flat());
      assert.equal(live.flat().length, total);
    });
  });

  describe(`transport ${name}: cursors`, () => {
    it('finds the position of any id in the history', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const all = Array.from({ length: 50 }, (_, index) => `id ${index} é`);
      await Promise.all(all.map((id) => transport.append(update(id))));
      for (const [index, id] of all.entries()) {
        assert.equal(await transport.find(id), index + 1);
      }
    });

    it('B-186: finds neither an id that never existed nor one that is too long', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const longest = 'é'.repeat(MAX_ID_BYTES / 2);
      await transport.append(update(longest));
      assert.equal(await transport.find(longest), 1);
      for (const unknown of ['', 'never', `${longest}x`, 'x'.repeat(4500), 'x'.repeat(80_000)]) {
        assert.equal(await transport.find(unknown), null, `${unknown.length} characters`);
      }
    });

    it('B-194 L11: finds the earliest remaining update of several with the same id', async (test) => {
      const transport = await opened(implementation, test, { size: 4 });
      if (transport === null) return;
      for (const id of ['a', 'twice', 'b', 'twice']) await transport.append(update(id));
      assert.equal(await transport.find('twice'), 2);
      await transport.append(update('twice'));
      await transport.append(update('c'));
      assert.equal(await transport.find('twice'), 4);
      await transport.append(update('d'));
      await transport.append(update('e'));
      assert.equal(await transport.find('twice'), 5);
      await transport.append(update('f'));
      assert.equal(await transport.find('twice'), null);
    });

    it('B-199: compares ids byte for byte', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      await transport.append(update('é'));
      assert.equal(await transport.find('é'), 1);
      assert.equal(await transport.find('e\u0301'), null);
      assert.equal(await transport.find('É'), null);
    });

    it('reads what follows a position, up to the requested amount', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      for (const id of ['a', 'b', 'c', 'd']) await transport.append(update(id));
      assert.deepEqual(ids(await transport.read(1, 2)), ['b', 'c']);
      assert.deepEqual(ids(await transport.read(0, 100)), ['a', 'b', 'c', 'd']);
      assert.deepEqual(await transport.read(4, 100), []);
    });

    it('ends a page at the requested number of bytes, but returns at least one update', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      await transport.append({ ...update('large'), data: LARGE });
      const data = 'x'.repeat(PAGE_BYTES / 8);
      for (let index = 0; index < 20; index += 1) {
        await transport.append({ ...update(`u${index}`), data });
      }
      assert.deepEqual(ids(await transport.read(0, 100, PAGE_BYTES)), ['large']);
      const page = await transport.read(1, 100, PAGE_BYTES);
      assert.ok(page.length >= 7 && page.length <= 9, `${page.length} updates`);
      assert.equal((await transport.read(0, 100)).length, 21, 'nobody has asked for less');
    });
  });

  describe(`transport ${name}: limits`, () => {
    it('evicts what exceeds its size, and keeps positions', async (test) => {
      const transport = await opened(implementation, test, { size: 2 });
      if (transport === null) return;
      const seen = collect(transport);
      await Promise.all(['a', 'b', 'c', 'd'].map((id) => transport.append(update(id))));
      assert.deepEqual(ids(seen), ['a', 'b', 'c', 'd'], 'the tail hands out even what is evicted');
      assert.equal(await transport.find('a'), null);
      const kept = await transport.read(0, 100);
      assert.deepEqual(
        kept.map(({ position, update: { id } }) => [position, id]),
        [
          [3, 'c'],
          [4, 'd'],
        ],
      );
      assert.equal(transport.lastEventId, 'd');
    });

    it('evicts what exceeds its age when the next update arrives', {
      skip: !hasAge,
    }, async (test) => {
      let now = Date.now();
      const clock = { ...systemClock, now: () => now };
      const transport = await opened(implementation, test, { size: 0, maxAgeMs: 1000, clock });
      if (transport === null) return;
      await transport.append(update('old'));
      await transport.append(update('old too'));
      now += 1001;
      await transport.append(update('new'));
      assert.equal(await transport.find('old'), null);
      assert.deepEqual(ids(await transport.read(0, 10)), ['new']);
    });

    it('refuses publishers when too much is queued for the store, and stores what it accepted', {
      skip: !isShared,
    }, async (test) => {
      // On a busy machine, the store may take longer than a publisher waits by a running clock.
      const clock = new TestClock();
      const transport = await opened(implementation, test, { size: 100_000, clock });
      if (transport === null) return;
      const seen = collect(transport);
      const outcomes = await Promise.allSettled(
        Array.from({ length: 40 }, (_, index) =>
          transport.append({ ...update(`u${index}`), data: LARGE }),
        ),
      );
      const refused = outcomes.filter(({ status }) => status === 'rejected');
      for (const outcome of refused) {
        assert.equal(outcome.status === 'rejected' && codeOf(outcome.reason), 'transport-failed');
      }
      assert.ok(refused.length > 0 && refused.length < 40, `${refused.length} refused`);
      assert.equal(seen.length, 40 - refused.length);
      await transport.append(update('after'));
    });

    it('delivers and reads in slices, however much there is', async (test) => {
      const log = await implementation.log(test, { size: 0 + 100_000 });
      if (log === null) return;
      const [writer, reader] = [await open(log, test), isShared ? await open(log, test) : null];
      const sizes: number[] = [];
      const all = new Promise<void>((resolve) => {
        let left = 2000;
        follow(reader ?? writer, (entries) => {
          sizes.push(entries.length);
          left -= entries.length;
          if (left === 0) resolve();
        });
      });
      const updates = Array.from({ length: 2000 }, (_, index) => update(`u${index}`));
      await Promise.all(updates.map((one) => writer.append(one)));
      const alive = setInterval(() => {}, 1000);
      await all;
      clearInterval(alive);
      assert.ok(Math.max(...sizes) <= ENTRIES_AT_ONCE, `${Math.max(...sizes)} at once`);
    });
  });

  describe(`transport ${name}: a hub that delivers more slowly than others publish`, {
    skip: !isShared,
  }, () => {
    it('gets no more entries until it has room, but signals, and nothing is missing then', async (test) => {
      const log = await implementation.log(test, { size: 100_000 });
      if (log === null) return;
      const alive = setInterval(() => {}, 1000);
      test.after(() => clearInterval(alive));
      const [here, there] = [await log.open(), await log.open()];
      test.after(() => Promise.all([here.close(), there.close()]));
      const seen: HistoryEntry[] = [];
      const hub = { isSlow: true, isFull: false, asked: 0 };
      here.tail({
        deliver: (entries) => {
          seen.push(...entries);
          hub.isFull = hub.isSlow;
          hub.asked = 0;
        },
        overtaken: () => assert.fail('nothing was evicted'),
        isFull: () => {
          hub.asked += 1;
          return hub.isFull;
        },
      });
      const others = Array.from({ length: 2000 }, (_, index) => `u${index}`);
      // A server has ten seconds for each append, which is little for all of them on a busy machine.
      for (let at = 0; at < others.length; at += 200) {
        await Promise.all(others.slice(at, at + 200).map((id) => there.append(update(id))));
      }
      const own = here.append(update('own'));
      while ((!hub.isFull || hub.asked < 3) && seen.length < others.length) await after(10);
      assert.ok(seen.length <= ENTRIES_AT_ONCE, `${seen.length} without room`);
      const { signals } = there;
      if (signals !== undefined) {
        const signalled = new Promise((resolve) => here.signals?.receive(resolve));
        void signals.send('signal');
        assert.equal(await signalled, 'signal');
      }
      Object.assign(hub, { isSlow: false, isFull: false });
      await own;
      assert.deepEqual(ids(seen), [...others, 'own']);
      Object.assign(hub, { isSlow: true, isFull: true, asked: 0 });
      await there.append(update('late'));
      // A read that began while there was room may still deliver it.
      while (hub.asked < 3 && seen.length === others.length + 1) await after(10);
      hub.asked = 0;
      await there.append(update('later'));
      while (hub.asked < 3) await after(10);
      await here.close();
      assert.ok(!ids(seen).includes('later'));
    });
  });

  describe(`transport ${name}: presence events`, () => {
    it('never evict an update, and are bounded themselves', async (test) => {
      const log = await implementation.log(test, { size: 1000 });
      if (log === null) return;
      const transport = await open(log, test);
      const wanted = Array.from({ length: 1000 }, (_, index) => `u${index}`);
      // Streams with 100 matchers come and go, amid and behind the updates: more than are kept.
      const atOnce = keptEvents + 600;
      const comings = Array.from({ length: 4 }, (_, index) => index);
      for (const coming of comings) {
        const batch = wanted.slice(coming * 250, coming * 250 + 250);
        await Promise.all(batch.slice(0, 100).map((id) => transport.append(update(id))));
        await Promise.all(
          Array.from({ length: 400 }, (_, index) => transport.append(event(`${coming}-${index}`))),
        );
        await Promise.all(batch.slice(100).map((id) => transport.append(update(id))));
      }
      await appendEvents(transport, 'last-', atOnce);
      const check = async (reader: Transport): Promise<void> => {
        const all = await allOf(reader);
        const updates = all.filter((entry) => entry.update.presence !== true);
        const events = all.filter((entry) => entry.update.presence === true);
        assert.deepEqual(ids(updates), wanted);
        assert.deepEqual(
          ids(events),
          Array.from({ length: keptEvents }, (_, index) => `last-${index + 600}`),
        );
        // Updates come in their order from wherever a client goes on.
        for (const [index, id] of [...wanted.entries()].filter((_, nth) => nth % 97 === 0)) {
          const found = await reader.find(id);
          assert.ok(found !== null);
          const behind = (await allOf(reader, found)).filter(
            ({ update: { presence } }) => !presence,
          );
          assert.deepEqual(ids(behind), wanted.slice(index + 1));
        }
        assert.equal(await reader.find('last-599'), null);
        assert.equal(reader.lastEventId, `last-${atOnce - 1}`);
        assert.equal(reader.lastUpdateId, 'u999');
        const { updates: evicted, events: evictedEvents } = await reader.evicted();
        assert.equal(evicted, 0);
        assert.equal(evictedEvents, ((await reader.find('last-600')) ?? 0) - 1);
      };
      await check(transport);
      if (isShared) await check(await open(log, test));
    });

    it('are no updates, for a process that finds nothing else', async (test) => {
      const log = await implementation.log(test, { size: 3 });
      if (log === null) return;
      const transport = await open(log, test);
      await transport.append(event('e0'));
      const found = isShared ? await open(log, test) : transport;
      assert.deepEqual([found.lastEventId, found.lastUpdateId], ['e0', null]);
      await found.append(update('a'));
      assert.deepEqual([found.lastEventId, found.lastUpdateId], ['a', 'a']);
    });

    it('are evicted with the updates around them, and never outlast a later one', async (test) => {
      const log = await implementation.log(test, { size: 3 });
      if (log === null) return;
      const transport = await open(log, test);
      for (const id of ['e0', 'a', 'e1', 'b', 'e2', 'c', 'e3', 'd', 'e4']) {
        await transport.append(id.startsWith('e') ? event(id) : update(id));
      }
      assert.deepEqual(ids(await transport.read(0, 100)), ['e1', 'b', 'e2', 'c', 'e3', 'd', 'e4']);
      assert.deepEqual(await transport.evicted(), { updates: 2, events: 1 });
      await transport.append(update('f'));
      assert.deepEqual(ids(await transport.read(0, 100)), ['e2', 'c', 'e3', 'd', 'e4', 'f']);
      assert.equal(await transport.find('e1'), null, 'whoever went on there would miss b');
      assert.deepEqual(ids(await transport.read((await transport.find('e2')) ?? 0, 100)), [
        ...['c', 'e3', 'd', 'e4', 'f'],
      ]);
    });

    it('leave an update with the same id findable', async (test) => {
      const transport = await opened(implementation, test, { size: 10 });
      if (transport === null) return;
      await transport.append(update('same'));
      await transport.append(event('same'));
      await transport.append(update('same'));
      await appendEvents(transport, 'e', keptEvents);
      assert.equal(await transport.find('same'), 1);
      for (let index = 0; index < 9; index += 1) await transport.append(update(`u${index}`));
      assert.equal(await transport.find('same'), 3);
      await transport.append(update('last'));
      assert.equal(await transport.find('same'), null);
    });

    it('are read back as presence events', async (test) => {
      const transport = await opened(implementation, test, { size: 10 });
      if (transport === null) return;
      const seen = collect(transport);
      await transport.append(event('e'));
      await transport.append(update('u'));
      assert.deepEqual(await transport.read(0, 2), [
        { position: 1, update: event('e') },
        { position: 2, update: update('u') },
      ]);
      assert.deepEqual(seen, await transport.read(0, 2));
    });
  });

  describe(`transport ${name}: several processes that share it`, { skip: !isShared }, () => {
    it('gives all of them the same order, each update once', async (test) => {
      const log = await implementation.log(test, { size: 100_000 });
      if (log === null) return;
      const all = [await open(log, test), await open(log, test), await open(log, test)];
      const alive = setInterval(() => {}, 1000);
      test.after(() => clearInterval(alive));
      const arrived = all.map((transport) => {
        const seen: HistoryEntry[] = [];
        return new Promise<HistoryEntry[]>((resolve) =>
          follow(transport, (entries) => {
            seen.push(...entries);
            if (seen.length >= 300) resolve(seen);
          }),
        );
      });
      await Promise.all(
        all.map(async (transport, index) => {
          for (let count = 0; count < 100; count += 1) {
            await transport.append(update(`${index}-${count}`));
          }
        }),
      );
      const [first, ...others] = await Promise.all(arrived);
      assert.equal(new Set(ids(first ?? [])).size, 300);
      for (const other of others) assert.deepEqual(other, first);
    });

    it('is notified of what others add while it stores an update of its own', async (test) => {
      const log = await implementation.log(test, { size: 100_000 });
      if (log === null) return;
      const all = [await open(log, test), await open(log, test), await open(log, test)];
      const seen = all.map((transport) => collect(transport));
      for (let round = 1; round <= 30; round += 1) {
        await Promise.all(
          all.map(async (transport, index) => {
            await after((round * (index + 1)) % 4);
            await transport.append(update(`${round}-${index}`));
          }),
        );
        // Nothing comes after the last of them that would tell of it.
        while (seen.some(({ length }) => length < round * all.length)) await after(1);
      }
      assert.deepEqual(ids(seen[0] ?? []), ids(seen[1] ?? []));
    });

    it('reports when it has delivered everything that any process can have delivered, even while it stores', async (test) => {
      const log = await implementation.log(test, { size: 100_000 });
      if (log === null) return;
      const [one, other] = [await open(log, test), await open(log, test)];
      const seen = collect(other);
      for (let round = 1; round <= 30; round += 1) {
        const own = other.append(update(`own-${round}`));
        await one.append(update(`${round}`));
        await other.caughtUp?.();
        assert.ok(ids(seen).includes(`${round}`), `round ${round}`);
        await own;
      }
    });

    it('K-578: keeps its updates, its position and its last event id across a restart', async (test) => {
      const log = await implementation.log(test, { size: 2 });
      if (log === null) return;
      const first = await log.open();
      for (const id of ['a', 'b', 'c']) await first.append(update(id));
      await first.close();
      const second = await open(log, test);
      assert.equal(second.position, 3);
      assert.equal(second.lastEventId, 'c');
      assert.equal(await second.find('b'), 2);
      const seen = collect(second);
      await second.append(update('d'));
      assert.deepEqual(
        seen.map(({ position }) => position),
        [4],
      );
    });
  });

  describe(`transport ${name}: a process that is paused for longer than the history keeps updates`, () => {
    it('is notified that updates were evicted, before it receives the later ones', async (test) => {
      const log = await implementation.log(test, { size: 10 });
      if (log?.appendElsewhere === undefined) return test.skip('no other process can append');
      const { handed, comes, log: transport } = await attended(log, test);
      await transport.append(update('before'));
      log.appendElsewhere(['updates:u:40', 'events:e:2', 'updates:last:1']);
      await comes('last0');
      checkGaps(handed);
      const missed = handed.filter((one) => typeof one === 'string');
      assert.ok(missed.length > 0);
      assert.ok(missed.every((one) => one === 'updates'));
      await transport.append(update('after'));
      assert.equal(handed.filter((one) => typeof one === 'string').length, missed.length);
    });

    it('is notified of evicted presence events separately, and receives every update', async (test) => {
      const log = await implementation.log(test, { size: 100_000 });
      if (log?.appendElsewhere === undefined) return test.skip('no other process can append');
      const { handed, comes, log: transport } = await attended(log, test);
      await transport.append(update('before'));
      log.appendElsewhere([
        ...['updates:a:3', `events:e:${keptEvents / 2}`, 'updates:b:3'],
        ...[`events:f:${keptEvents}`, 'updates:c:3'],
      ]);
      await comes('c2');
      checkGaps(handed);
      const missed = handed.filter((one) => typeof one === 'string');
      assert.ok(missed.length > 0);
      assert.ok(missed.every((one) => one === 'events'));
      const entries = handed.filter((one) => typeof one !== 'string');
      assert.deepEqual(ids(entries.filter((entry) => entry.update.presence !== true)), [
        'before',
        'a0',
        'a1',
        'a2',
        'b0',
        'b1',
        'b2',
        'c0',
        'c1',
        'c2',
      ]);
    });

    it('finds an update that another process has stored in the same turn of the event loop', async (test) => {
      const log = await implementation.log(test, { size: 100 });
      if (log?.appendElsewhere === undefined) return test.skip('no other process can append');
      const { log: transport } = await attended(log, test);
      await transport.append(update('before'));
      // From now on, what has been read is the state of this turn. Nothing may be under way to a server, because the
      // other process blocks this one.
      await transport.find('unknown');
      assert.notEqual(await transport.find('before'), null);
      log.appendElsewhere(['updates:x:1']);
      assert.notEqual(await transport.find('x0'), null);
    });

    it('is not notified if everything that it had not read is still there', async (test) => {
      const log = await implementation.log(test, { size: 100 });
      if (log?.appendElsewhere === undefined) return test.skip('no other process can append');
      const { handed, comes, log: transport } = await attended(log, test);
      for (let index = 0; index < 60; index += 1) await transport.append(update(`u${index}`));
      log.appendElsewhere(['updates:v:80', 'events:e:10', 'updates:last:1']);
      await comes('last0');
      assert.deepEqual(
        handed.map((one) => (typeof one === 'string' ? one : one.position)),
        Array.from({ length: 151 }, (_, index) => index + 1),
      );
    });
  });

  describe(`transport ${name}: failure`, () => {
    it('delivers no update that could not be stored, and continues when storing works again', async (test) => {
      const log = await implementation.log(test, { size: 100_000 });
      if (log?.breakStore === undefined) return test.skip('it cannot fail');
      const [transport, other] = [await open(log, test), await open(log, test)];
      const seen = collect(transport);
      const alive = setInterval(() => {}, 1000);
      test.after(() => clearInterval(alive));
      const otherSeen: HistoryEntry[] = [];
      const recovered = new Promise<void>((resolve) =>
        follow(other, (entries) => {
          otherSeen.push(...entries);
          if (ids(entries).includes('after')) resolve();
        }),
      );
      await transport.append(update('before'));
      const fix = await log.breakStore();
      try {
        const failing = ['a', 'b'].map((id) => transport.append({ ...update(id), data: LARGE }));
        for (const append of failing) await assert.rejects(append, { code: 'transport-failed' });
        await assert.rejects(transport.append({ ...update('c'), data: LARGE }), {
          code: 'transport-failed',
        });
        assert.deepEqual(ids(seen), ['before']);
        assert.equal(transport.lastEventId, 'before');
      } finally {
        fix();
      }
      await transport.append(update('after'));
      await transport.check();
      await recovered;
      assert.deepEqual(ids(seen), ['before', 'after']);
      assert.deepEqual(otherSeen, seen);
      assert.equal(await transport.find('a'), null);
      assert.deepEqual(await transport.read(0, 10), seen);
    });

    it('K-590: refuses everything after close, and can be closed twice', async (test) => {
      const transport = await opened(implementation, test, { size: 10 });
      if (transport === null) return;
      await transport.check();
      await transport.close();
      await transport.close();
      await assert.rejects(transport.append(update('a')), { code: 'transport-closed' });
      await assert.rejects(transport.find('a'), { code: 'transport-closed' });
      await assert.rejects(transport.read(0, 1), { code: 'transport-closed' });
      await assert.rejects(transport.check(), { code: 'transport-closed' });
    });

    it('finishes pending appends when it is closed', async (test) => {
      const log = await implementation.log(test, { size: 100_000 });
      if (log === null) return;
      const transport = await log.open();
      const seen = collect(transport);
      const appends = Array.from({ length: 50 }, (_, index) =>
        transport.append(update(`u${index}`)),
      );
      await transport.close();
      await Promise.all(appends);
      assert.equal(seen.length, 50);
      if (!isShared) return;
      const again = await open(log, test);
      assert.equal(again.position, 50);
    });
  });

  describe(`transport ${name}: presence`, () => {
    it('lists the subscribers on a board, in the order of their arrival', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const { presence } = transport;
      assert.deepEqual(await onBoard(presence), []);
      await presence.enter('urn:z', [subscription('z', 'one'), subscription('z', 'two')]);
      await presence.enter('urn:a', [subscription('a', 'one')]);
      assert.deepEqual(
        (await onBoard(presence)).map(({ id }) => id),
        [
          '/hub/subscriptions/exact/one/z',
          '/hub/subscriptions/exact/two/z',
          '/hub/subscriptions/exact/one/a',
        ],
      );
      assert.deepEqual((await onBoard(presence))[2], subscription('a', 'one'));
      await presence.leave('urn:z');
      await presence.leave('urn:never');
      assert.deepEqual(await onBoard(presence), [subscription('a', 'one')]);
    });

    it('is read page by page, with each subscriber once', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const { presence } = transport;
      assert.deepEqual(await presence.page(null, 10), { records: [], next: null });
      const subscribers = Array.from({ length: 25 }, (_, index) => `s${index}`);
      await Promise.all(
        subscribers.map((id) => presence.enter(`urn:${id}`, [subscription(id, 'm')])),
      );
      const found: string[] = [];
      const sizes: number[] = [];
      let next: string | null = null;
      do {
        const page: Awaited<ReturnType<typeof presence.page>> = await presence.page(next, 10);
        found.push(...page.records.map(({ subscriber }) => subscriber));
        sizes.push(page.records.length);
        next = page.next;
      } while (next !== null);
      assert.deepEqual(found.toSorted(), subscribers.toSorted());
      assert.deepEqual(sizes, [10, 10, 5]);
    });

    it('does not show subscribers that have left, however few remain', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const { presence } = transport;
      for (const id of ['a', 'b', 'c', 'd', 'e']) {
        await presence.enter(`urn:${id}`, [subscription(id, 'm')]);
      }
      await presence.leave('urn:b');
      const matcher = { match_type: 'exact', match: 'm' } as const;
      for (const found of [await onBoard(presence), await onBoard(presence, matcher)]) {
        assert.deepEqual(
          found.map(({ subscriber }) => subscriber),
          ['a', 'c', 'd', 'e'],
        );
      }
    });

    it('finds the subscribers with a matcher, and a single subscriber, without scanning the others', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const { presence } = transport;
      const subscribers = Array.from({ length: 30 }, (_, index) => `s${index}`);
      for (const [index, id] of subscribers.entries()) {
        const matchers = index % 3 === 0 ? ['rare', 'common', 'rare'] : ['common'];
        await presence.enter(
          `urn:${id}`,
          matchers.map((match) => subscription(id, match)),
        );
      }
      const rare = { match_type: 'exact', match: 'rare' } as const;
      const withRare = async (limit: number): Promise<string[]> =>
        (await onBoard(presence, rare, limit))
          .filter(({ match }) => match === 'rare')
          .map(({ subscriber }) => subscriber);
      const wanted = subscribers.filter((_, index) => index % 3 === 0).flatMap((id) => [id, id]);
      assert.deepEqual(await withRare(4), wanted);
      assert.equal((await presence.page(null, 4, rare)).records.length, 12, 'nobody else is read');
      assert.deepEqual(await onBoard(presence, { match_type: 'urlpattern', match: 'rare' }), []);
      assert.deepEqual(
        (await presence.of('urn:s3')).map(({ match }) => match),
        ['rare', 'common', 'rare'],
      );
      assert.deepEqual(await presence.of('urn:s99'), []);
      for (const id of subscribers) if (id !== 's27') await presence.leave(`urn:${id}`);
      assert.deepEqual(await withRare(4), ['s27', 's27']);
      assert.deepEqual(await presence.of('urn:s3'), []);
    });

    it('shows remaining subscribers exactly once, although others leave while it is read', async (test) => {
      const transport = await opened(implementation, test);
      if (transport === null) return;
      const { presence } = transport;
      const subscribers = Array.from({ length: 40 }, (_, index) => `s${index}`);
      for (const id of subscribers) await presence.enter(`urn:${id}`, [subscription(id, 'm')]);
      const found: string[] = [];
      for (let next: string | null = null, page = 0; page === 0 || next !== null; page += 1) {
        const { records, next: following } = await presence.page(next, 10);
        found.push(...records.map(({ subscriber }) => subscriber));
        next = following;
        for (let left = 0; left < 7; left += 1) await presence.leave(`urn:s${page * 7 + left}`);
      }
      const stayed = subscribers.slice(28);
      assert.deepEqual(
        stayed.filter((id) => found.filter((one) => one === id).length === 1),
        stayed,
      );
    });
  });
}

/** An opening of a new log, with a tail, that is closed with the test. */
async function opened(
  { log }: Implementation,
  test: TestContext,
  limits: Parameters<Implementation['log']>[1] = { size: 100_000 },
): Promise<Transport | null> {
  const made = await log(test, limits);
  return made === null ? null : open(made, test);
}

async function open(log: TestHistory, test: TestContext): Promise<Transport> {
  const transport = await log.open();
  transport.tail(NO_TAIL);
  test.after(() => transport.close());
  return transport;
}

/** An opening, and all that its tail says in order: entries, and what was evicted before it could be one of them. */
async function attended(log: TestHistory, test: TestContext) {
  const transport = await open(log, test);
  const alive = setInterval(() => {}, 1000);
  test.after(() => clearInterval(alive));
  const handed: (HistoryEntry | Missed)[] = [];
  let told = (): void => {};
  transport.tail({
    ...NO_TAIL,
    deliver: (entries) => {
      handed.push(...entries);
      told();
    },
    overtaken: (missed) => void handed.push(missed),
  });
  const comes = async (id: string): Promise<void> => {
    const isThere = (one: HistoryEntry | Missed): boolean =>
      typeof one !== 'string' && one.update.id === id;
    while (!handed.some(isThere)) await new Promise<void>((resolve) => (told = resolve));
  };
  return { handed, comes, log: transport };
}

/** Wherever positions are missing the tail has said so, at the latest in front of what it handed out with them. */
function checkGaps(handed: readonly (HistoryEntry | Missed)[]): void {
  let [expected, isTold] = [1, false];
  for (const one of handed) {
    if (typeof one === 'string') {
      isTold = true;
      continue;
    }
    assert.ok(
      one.position === expected || isTold,
      `nothing tells of what is missing at ${expected}`,
    );
    if (one.position !== expected) isTold = false;
    expected = one.position + 1;
  }
}

function collect(transport: Transport): HistoryEntry[] {
  const seen: HistoryEntry[] = [];
  follow(transport, (entries) => seen.push(...entries));
  return seen;
}

function ids(entries: readonly HistoryEntry[]): string[] {
  return entries.map(({ update: { id } }) => id);
}

/** All that is kept behind a position, read in pages. */
async function allOf(transport: Transport, after = 0): Promise<HistoryEntry[]> {
  const all: HistoryEntry[] = [];
  for (let position = after; position < transport.position; ) {
    const page = await transport.read(position, 512);
    all.push(...page);
    position = page.at(-1)?.position ?? transport.position;
  }
  return all;
}

/** Appends many presence events, a few at a time: a busy store has ten seconds for each that waits. */
async function appendEvents(transport: Transport, name: string, count: number): Promise<void> {
  for (let from = 0; from < count; from += 200) {
    const length = Math.min(200, count - from);
    await Promise.all(
      Array.from({ length }, (_, index) => transport.append(event(`${name}${from + index}`))),
    );
  }
}

function event(id: string): Update {
  return { ...update(id), private: true, type: 'hub', presence: true };
}

function update(id: string): Update {
  return { id, topics: ['topic'], data: '', private: false, type: null, retry: null };
}

function subscription(subscriber: string, match: string): SubscriptionRecord {
  return {
    id: `/hub/subscriptions/exact/${match}/${subscriber}`,
    type: 'subscription',
    subscriber,
    match,
    match_type: 'exact',
    active: true,
    payload: { n: -0.5, nested: [null, 'é', { '': true }] },
  };
}
