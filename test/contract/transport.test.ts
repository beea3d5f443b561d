import assert from 'node:assert/strict';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { SubscriptionRecord } from '../../src/hub/presence.ts';
import type { LogEntry, Transport } from '../../src/hub/transport.ts';
import type { Update } from '../../src/hub/update.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';
import { createMemoryTransport } from '../../src/transports/memory.ts';

interface Implementation {
  readonly name: string;
  /** Opens a log that keeps `size` updates; opened again it is the same log where it is durable. */
  open(test: TestContext, size: number): Promise<{ open(): Promise<Transport> }>;
}

const implementations: readonly Implementation[] = [
  {
    name: 'memory',
    async open(_test, size) {
      return { open: async () => createMemoryTransport({ size }) };
    },
  },
  {
    name: 'lmdb',
    async open(test, size) {
      const path = await mkdtemp(join(tmpdir(), 'hubgate-lmdb-'));
      test.after(() => rm(path, { recursive: true, force: true }));
      return {
        open: () =>
          openLmdbTransport({
            path,
            size,
            maxAgeMs: 0,
            durability: 'commit',
            clock: systemClock,
            log: silentLogger,
          }),
      };
    },
  },
];

for (const { name, open } of implementations) {
  describe(`transport ${name}`, () => {
    it('hands out every append in order, then resolves it', async (test) => {
      const transport = await opened(open, test, 100);
      const seen = collect(transport);
      await transport.append(update('a'));
      assert.deepEqual(ids(seen), ['a']);
      await Promise.all(['b', 'c', 'd'].map((id) => transport.append(update(id))));
      assert.deepEqual(ids(seen), ['a', 'b', 'c', 'd']);
      assert.deepEqual(
        seen.map(({ position }) => position),
        [1, 2, 3, 4],
      );
    });

    it('knows its position and last event id, none before the first update', async (test) => {
      const transport = await opened(open, test, 100);
      assert.equal(transport.position, 0);
      assert.equal(transport.lastEventId, null);
      await transport.append(update('a'));
      assert.equal(transport.position, 1);
      assert.equal(transport.lastEventId, 'a');
    });

    it('has a board of who is subscribed, in the order of coming', async (test) => {
      const { presence } = await opened(open, test, 100);
      assert.deepEqual(await presence.list(), []);
      await presence.enter('urn:z', [subscription('z', 'one'), subscription('z', 'two')]);
      await presence.enter('urn:a', [subscription('a', 'one')]);
      assert.deepEqual(
        (await presence.list()).map(({ id }) => id),
        [
          '/hub/subscriptions/exact/one/z',
          '/hub/subscriptions/exact/two/z',
          '/hub/subscriptions/exact/one/a',
        ],
      );
      assert.deepEqual((await presence.list())[2], subscription('a', 'one'));
      await presence.leave('urn:z');
      await presence.leave('urn:never');
      assert.deepEqual(await presence.list(), [subscription('a', 'one')]);
    });

    it('B-194 L11: finds the earliest of several updates with one id', async (test) => {
      const transport = await opened(open, test, 100);
      for (const id of ['a', 'twice', 'b', 'twice']) await transport.append(update(id));
      assert.equal(await transport.find('twice'), 2);
    });

    it('B-199: compares ids byte for byte', async (test) => {
      const transport = await opened(open, test, 100);
      await transport.append(update('é'));
      assert.equal(await transport.find('é'), 1);
      assert.equal(await transport.find('e\u0301'), null);
      assert.equal(await transport.find('É'), null);
    });

    it('reads what follows a position, as much as was asked for', async (test) => {
      const transport = await opened(open, test, 100);
      for (const id of ['a', 'b', 'c', 'd']) await transport.append(update(id));
      assert.deepEqual(ids(await transport.read(1, 2)), ['b', 'c']);
      assert.deepEqual(ids(await transport.read(0, 100)), ['a', 'b', 'c', 'd']);
      assert.deepEqual(await transport.read(4, 100), []);
    });

    it('gives back every field of an update unchanged', async (test) => {
      const transport = await opened(open, test, 100);
      const full: Update = {
        id: 'urn:uuid:1',
        topics: ['https://example.com/é', 'b c'],
        data: 'line\r\nline\0\u{1F600}',
        private: true,
        type: 'message',
        retry: '18446744073709551615',
      };
      await transport.append(full);
      const [entry] = await transport.read(0, 1);
      assert.deepEqual(entry, { position: 1, update: full });
    });

    it('forgets what exceeds its size, and keeps positions', async (test) => {
      const transport = await opened(open, test, 2);
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

    it('K-590: refuses everything after close, and closes twice without complaint', async (test) => {
      const transport = await opened(open, test, 10);
      await transport.check();
      await transport.close();
      await transport.close();
      await assert.rejects(transport.append(update('a')), { code: 'transport-closed' });
      await assert.rejects(transport.check(), { code: 'transport-closed' });
    });
  });
}

describe('transport lmdb on disk', () => {
  const [, lmdb] = implementations;
  assert.ok(lmdb);

  it('K-578: keeps its updates, its position and its last event id over a restart', async (test) => {
    const log = await lmdb.open(test, 2);
    const first = await log.open();
    for (const id of ['a', 'b', 'c']) await first.append(update(id));
    await first.close();
    const second = await log.open();
    test.after(() => second.close());
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

  it('hands out what another process, here another opening, has appended', async (test) => {
    const log = await lmdb.open(test, 100);
    const [mine, other] = [await log.open(), await log.open()];
    test.after(() => mine.close());
    test.after(() => other.close());
    const arrived = new Promise<LogEntry>((resolve) =>
      mine.tail(([entry]) => entry !== undefined && resolve(entry)),
    );
    other.tail(() => {});
    // The log's own timer keeps no process alive, so the test does.
    const alive = setInterval(() => {}, 1000);
    test.after(() => clearInterval(alive));
    await other.append(update('theirs'));
    assert.equal((await arrived).update.id, 'theirs');
    assert.equal(mine.lastEventId, 'theirs');
  });

  it('K-580: makes its directory 0700 and its file 0600', async (test) => {
    const parent = await mkdtemp(join(tmpdir(), 'hubgate-lmdb-'));
    test.after(() => rm(parent, { recursive: true, force: true }));
    const path = join(parent, 'deep', 'history');
    const transport = await openLmdbTransport({
      path,
      size: 0,
      maxAgeMs: 0,
      durability: 'commit',
      clock: systemClock,
      log: silentLogger,
    });
    test.after(() => transport.close());
    await transport.append(update('a'));
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    assert.equal((await stat(join(path, 'history.mdb'))).mode & 0o777, 0o600);
  });

  it('forgets what is older than max_age when the next update comes', async (test) => {
    const path = await mkdtemp(join(tmpdir(), 'hubgate-lmdb-'));
    test.after(() => rm(path, { recursive: true, force: true }));
    let now = 1_000_000;
    const transport = await openLmdbTransport({
      path,
      size: 0,
      maxAgeMs: 1000,
      durability: 'async',
      clock: { ...systemClock, now: () => now },
      log: silentLogger,
    });
    test.after(() => transport.close());
    await transport.append(update('old'));
    now += 1001;
    await transport.append(update('new'));
    assert.equal(await transport.find('old'), null);
    assert.deepEqual(ids(await transport.read(0, 10)), ['new']);
  });

  it('says that a directory cannot be opened', async () => {
    await assert.rejects(
      openLmdbTransport({
        path: '/dev/null/history',
        size: 0,
        maxAgeMs: 0,
        durability: 'commit',
        clock: systemClock,
        log: silentLogger,
      }),
      { code: 'transport-failed' },
    );
  });
});

async function opened(
  open: Implementation['open'],
  test: TestContext,
  size: number,
): Promise<Transport> {
  const transport = await (await open(test, size)).open();
  transport.tail(() => {});
  test.after(() => transport.close());
  return transport;
}

function collect(transport: Transport): LogEntry[] {
  const seen: LogEntry[] = [];
  transport.tail((entries) => seen.push(...entries));
  return seen;
}

function ids(entries: readonly LogEntry[]): string[] {
  return entries.map(({ update: { id } }) => id);
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
