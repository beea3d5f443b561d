import assert from 'node:assert/strict';
import {
  chmod,
  chown,
  mkdtemp,
  open as openFile,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { open } from 'lmdb';
import {
  type HistoryEntry,
  SHARED_PRESENCE_EVENTS_KEPT,
  type Transport,
  NO_TAIL,
} from '../../../src/hub/transport.ts';
import type { Update } from '../../../src/hub/update.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { type Logger, silentLogger } from '../../../src/kernel/log.ts';
import { openLmdbHistory } from '../../../src/transports/lmdb/lmdb-history.ts';
import { openLmdbTransport } from '../../../src/transports/lmdb/lmdb-transport.ts';
import { root, SOURCE, startProcess } from '../../support/process.ts';
import { RecordedLog } from '../../support/recorded-log.ts';
import { removeWith } from '../../support/temporary-directory.ts';
import { TestClock } from '../../support/test-clock.ts';
import { follow } from '../../support/follow.ts';

describe('a history in LMDB on disk', () => {
  it('K-580: has a directory with mode 0700 and files with 0600, including the lock', async (test) => {
    const path = join(await directory(test), 'deep', 'history');
    const transport = await openHistory(path);
    test.after(() => transport.close());
    await transport.append(update('a'));
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    for (const file of ['history.mdb', 'history.mdb-lock']) {
      assert.equal((await stat(join(path, file))).mode & 0o777, 0o600, file);
    }
  });

  it('has its lock file without holes, whose first use would end the process on a full disk', async (test) => {
    const path = await directory(test);
    const transport = await openHistory(path);
    test.after(() => transport.close());
    const lock = await stat(join(path, 'history.mdb-lock'));
    assert.ok(lock.blocks * 512 >= lock.size, `${lock.blocks * 512} of ${lock.size} bytes`);
    assert.deepEqual((await readdir(path)).sort(), ['history.mdb', 'history.mdb-lock']);
  });

  it('reports the path that cannot be opened', async () => {
    await assert.rejects(openHistory('/dev/null/history'), {
      code: 'transport-failed',
      message: /\/dev\/null\/history cannot be opened .*; is it, or a directory above it, a file/,
    });
  });

  it('says whose a directory is that this user may not use', async (test) => {
    if (process.geteuid?.() !== 0) return test.skip('only root can become another user');
    const storage = await directory(test);
    await chmod(storage, 0o711);
    const path = join(storage, 'history', 'hub');
    const transport = await openHistory(path);
    await transport.close();
    await chmod(join(storage, 'history'), 0o700);
    process.seteuid?.(65_534);
    try {
      await assert.rejects(openHistory(path), {
        message: new RegExp(`; ${storage}/history belongs to root, and this process runs as `),
      });
    } finally {
      process.seteuid?.(0);
    }
    await chmod(join(storage, 'history'), 0o711);
    await chown(path, 65_534, 65_534);
    process.seteuid?.(65_534);
    try {
      await assert.rejects(openHistory(path), { message: /\/history\.mdb belongs to root, and/ });
    } finally {
      process.seteuid?.(0);
    }
  });

  it('suggests a fix for a file that is not an LMDB database', async (test) => {
    const path = await directory(test);
    await writeFile(join(path, 'history.mdb'), 'x'.repeat(100_000));
    await assert.rejects(openHistory(path), {
      code: 'history-damaged',
      message: /is not a history, or .* hubgate history import/,
    });
  });

  it('stores nothing while its file is not in its place, and says so once', async (test) => {
    const path = await directory(test);
    const log = new RecordedLog();
    const transport = await openHistory(path, log);
    test.after(() => transport.close());
    await transport.append(update('a'));
    const file = join(path, 'history.mdb');
    await rename(file, `${file}.moved`);
    const refused = {
      code: 'transport-failed',
      message: /history\.mdb was moved, deleted or replaced/,
    };
    await assert.rejects(transport.append(update('b')), refused);
    await assert.rejects(transport.check(), refused);
    // A process that starts now would begin another history.
    await writeFile(file, '');
    await assert.rejects(transport.append(update('b')), refused);
    await rename(`${file}.moved`, file);
    await transport.append(update('c'));
    await transport.check();
    const stored = await transport.read(0, 10);
    assert.deepEqual(
      stored.map(({ update: { id } }) => id),
      ['a', 'c'],
    );
    assert.deepEqual(
      log.lines.map(({ level }) => level),
      ['error', 'info'],
    );
  });

  it('leaves data of a later version untouched', async (test) => {
    const path = await directory(test);
    const transport = await openHistory(path);
    await transport.append(update('a'));
    await transport.close();
    const root = open({ path: join(path, 'history.mdb'), maxDbs: 5 });
    await root.openDB({ name: 'meta', encoding: 'msgpack' }).put('format', 3);
    await root.close();
    await assert.rejects(openHistory(path), {
      code: 'history-too-new',
      message: /written by a later version of hubgate/,
    });
  });

  it('does not take evicted presence events for damage, but does report a lost update among them', async (test) => {
    const path = await directory(test);
    const transport = await openHistory(path);
    const group = (from: number): Promise<unknown> =>
      Promise.all(
        Array.from({ length: 500 }, (_, index) => transport.append(event(`e${from + index}`))),
      );
    await transport.append(update('a'));
    await group(0);
    await transport.append(update('b'));
    for (let from = 500; from < SHARED_PRESENCE_EVENTS_KEPT + 500; from += 500) await group(from);
    await transport.append(update('c'));
    await transport.close();
    const history = await openLmdbHistory(path);
    assert.deepEqual(await history.verify(() => {}), []);
    await history.close();
    const root = open({ path: join(path, 'history.mdb'), maxDbs: 8 });
    const log = root.openDB<Buffer, number>({ name: 'log', encoding: 'binary' });
    assert.equal(log.getKeysCount(), SHARED_PRESENCE_EVENTS_KEPT + 3);
    // Position 502 is b, all before it but a is evicted.
    await log.remove(502);
    await root.close();
    const again = await openHistory(path);
    await assert.rejects(again.read(1, 10), { code: 'transport-failed', message: /position 2 of/ });
    assert.equal((await again.read(502, 10)).length, 10);
    await again.close();
    const damaged = await openLmdbHistory(path);
    test.after(() => damaged.close());
    assert.deepEqual(
      (await damaged.verify(() => {})).map(({ position }) => position),
      [2],
    );
  });

  it('notices a presence event that is lost though it was not evicted', async (test) => {
    const path = await directory(test);
    const transport = await openHistory(path);
    await transport.append(update('a'));
    for (const id of ['e1', 'e2', 'e3']) await transport.append(event(id));
    await transport.append(update('b'));
    await transport.close();
    const root = open({ path: join(path, 'history.mdb'), maxDbs: 8 });
    await root.openDB({ name: 'log', encoding: 'binary' }).remove(3);
    await root.close();
    const again = await openHistory(path);
    test.after(() => again.close());
    await assert.rejects(again.read(1, 10), { code: 'transport-failed', message: /position 3 of/ });
  });

  it('keeps working with data from before presence events, which older versions can read until one is stored', async (test) => {
    const path = await directory(test);
    const transport = await openHistory(path);
    for (const id of ['a', 'b', 'c']) await transport.append(update(id));
    await transport.close();
    const root = open({ path: join(path, 'history.mdb'), maxDbs: 8 });
    const meta = root.openDB({ name: 'meta', encoding: 'msgpack' });
    const log = root.openDB<Buffer, number>({ name: 'log', encoding: 'binary' });
    assert.equal(meta.get('format'), 1);
    assert.deepEqual(
      [1, 2, 3].map((position) => log.get(position)?.[0]),
      [1, 1, 1],
    );
    // As it was written then, with an update that was evicted.
    await meta.put('tail', { position: 3, eventId: 'c' });
    await log.remove(1);
    await root.close();
    const again = await openHistory(path);
    assert.deepEqual(await again.evicted(), { updates: 1, events: 0 });
    assert.equal(again.lastUpdateId, 'c');
    for (const id of ['e1', 'e2']) await again.append(event(id));
    await again.append(update('d'));
    assert.deepEqual(
      (await again.read(0, 10)).map(({ update: { id } }) => id),
      ['b', 'c', 'e1', 'e2', 'd'],
    );
    assert.deepEqual(await again.evicted(), { updates: 1, events: 0 });
    await again.close();
    const after = open({ path: join(path, 'history.mdb'), maxDbs: 8 });
    assert.equal(after.openDB({ name: 'meta', encoding: 'msgpack' }).get('format'), 2);
    await after.close();
  });

  it('K-587: withholds an update with a changed byte from all clients; the others stay readable', async (test) => {
    const path = await directory(test);
    const first = await openHistory(path);
    for (const id of ['a', 'b', 'c']) {
      await first.append({ ...update(id), data: `this is the data of ${id}` });
    }
    await first.close();
    const file = join(path, 'history.mdb');
    const bytes = await readFile(file);
    const handle = await openFile(file, 'r+');
    for (let at = -1; (at = bytes.indexOf('data of b', at + 1)) !== -1; ) {
      await handle.write('X', at);
    }
    await handle.close();
    const transport = await openHistory(path);
    test.after(() => transport.close());
    await assert.rejects(transport.read(0, 10), {
      code: 'transport-failed',
      message: /position 2 of .*checksum.*hubgate history verify/,
    });
    assert.deepEqual(
      (await transport.read(2, 10)).map(({ update: { id } }) => id),
      ['c'],
    );
    await transport.append(update('d'));
    assert.equal(transport.position, 4);
  });

  it('is not opened if the end that it records is impossible, or lies before its updates', async (test) => {
    const path = await directory(test);
    const first = await openHistory(path);
    for (const id of ['a', 'b', 'c']) await first.append(update(id));
    await first.close();
    const sound = await readFile(join(path, 'history.mdb'));
    const put = async (tail: unknown): Promise<void> => {
      await writeFile(join(path, 'history.mdb'), sound);
      const root = open({ path: join(path, 'history.mdb'), maxDbs: 7 });
      const binary = Buffer.isBuffer(tail);
      await root
        .openDB({ name: 'meta', encoding: binary ? 'binary' : 'msgpack' })
        .put('tail', tail);
      await root.close();
    };
    await put({ position: 2, eventId: 'b' });
    await assert.rejects(openHistory(path), {
      code: 'history-damaged',
      message:
        /end mark of history.mdb is damaged \(there are updates after it\).*hubgate history import/,
    });
    await put(Buffer.from([0xda, 0xff, 0xff, 1]));
    await assert.rejects(openHistory(path), { code: 'history-damaged', message: /end mark/ });
    await put({ position: 3, eventId: 'c' });
    const again = await openHistory(path);
    assert.equal(again.position, 3);
    await again.close();
  });

  it('delivers what other processes have stored in slices, one per turn, before its own updates', async (test) => {
    const path = await directory(test);
    const [late, busy] = [await openHistory(path), await openHistory(path)];
    test.after(() => Promise.all([late.close(), busy.close()]));
    const others = Array.from({ length: 2_000 }, (_, index) => `u${index}`);
    await Promise.all(others.map((id) => busy.append(update(id))));
    let turns = 0;
    let immediate = setImmediate(function next() {
      turns += 1;
      immediate = setImmediate(next);
    });
    const perTurn = new Map<number, number>();
    const seen: string[] = [];
    follow(late, (entries) => {
      perTurn.set(turns, (perTurn.get(turns) ?? 0) + entries.length);
      seen.push(...entries.map(({ update: { id } }) => id));
    });
    await late.append(update('own'));
    clearImmediate(immediate);
    assert.deepEqual(seen, [...others, 'own']);
    assert.ok(Math.max(...perTurn.values()) <= 300, [...perTurn.values()].join());
  });

  it('checks the history again some times after a change of its file, which it may have seen too early', async (test) => {
    const clock = new TestClock();
    const options = { path: await directory(test), size: 0, maxAgeMs: 0 };
    const more = { durability: 'commit', clock, log: silentLogger } as const;
    const transport = await openLmdbTransport({ ...options, ...more });
    test.after(() => transport.close());
    const quiet = clock.waiting;
    transport.tail(NO_TAIL);
    await transport.append(update('a'));
    while (clock.waiting === quiet) await new Promise((resolve) => setTimeout(resolve, 5));
    const reads = test.mock.method(transport, 'wake', () => {});
    for (const ms of [20, 200, 1_000]) clock.advance(ms);
    assert.ok(reads.mock.callCount() >= 3);
    // The system reports a commit as several changes. After the last one, the checks end.
    while (clock.waiting > quiet) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      clock.advance(1_000);
    }
  });

  it('reports updates that LMDB can no longer find, and takes them neither for evicted nor for unwritten', async (test) => {
    const path = await directory(test);
    const first = await openHistory(path);
    for (const id of ['a', 'b', 'c', 'd', 'e']) await first.append(update(id));
    await first.close();
    const without = async (positions: readonly number[]): Promise<void> => {
      const root = open({ path: join(path, 'history.mdb'), maxDbs: 7 });
      const log = root.openDB({ name: 'log', encoding: 'binary' });
      for (const position of positions) await log.remove(position);
      await root.close();
    };
    const ids = (entries: readonly HistoryEntry[]) => entries.map(({ update: { id } }) => id);
    const isMissing = (position: number) => ({
      code: 'transport-failed',
      message: new RegExp(`position ${position} of .*damaged.*hubgate history verify`),
    });

    await without([1]);
    const evicted = await openHistory(path);
    assert.deepEqual(ids(await evicted.read(0, 10)), ['b', 'c', 'd', 'e']);
    await evicted.close();

    await without([3]);
    const holed = await openHistory(path);
    await assert.rejects(holed.read(0, 10), isMissing(3));
    await assert.rejects(holed.read(2, 10), isMissing(3));
    assert.deepEqual(ids(await holed.read(3, 10)), ['d', 'e']);
    await holed.close();

    await without([4, 5]);
    const cut = await openHistory(path);
    await assert.rejects(cut.read(3, 10), isMissing(4));
    assert.deepEqual(ids(await cut.read(5, 10)), []);
    await cut.append(update('f'));
    assert.deepEqual(ids(await cut.read(5, 10)), ['f']);
    await cut.close();

    const history = await openLmdbHistory(path);
    test.after(() => history.close());
    assert.deepEqual(await history.verify(() => {}), [
      { position: 3, message: 'it and all updates up to 5 are missing' },
    ]);
  });
});

describe('a history that one process opens several times', () => {
  // In a process of its own, because a deadlock stops the event loop.
  it('can be opened while updates are being stored, and while it is being closed', async (test) => {
    const program = join(root, 'test/unit/transports/lmdb-programs/opens-often.ts');
    const path = await directory(test);
    const child = startProcess(test, [...SOURCE, program, path]);
    const timer = setTimeout(() => child.child.kill('SIGKILL'), 60_000);
    test.after(() => clearTimeout(timer));
    await child.says('stored 120, found 120');
  });

  it('is closed by the last that has opened it', async (test) => {
    const path = await directory(test);
    const [one, two] = await Promise.all([openHistory(path), openHistory(path)]);
    await one.append(update('a'));
    await one.close();
    await one.close();
    await two.append(update('b'));
    assert.deepEqual(await found(two), ['a', 'b']);
    await Promise.all([
      two.close(),
      openHistory(path).then(async (three) => {
        await three.append(update('c'));
        assert.deepEqual(await found(three), ['a', 'b', 'c']);
        await three.close();
      }),
    ]);
    // Nobody has it open any more: the file that was put in its place is the one that is opened.
    await rm(path, { recursive: true });
    const anew = await openHistory(path);
    test.after(() => anew.close());
    assert.deepEqual(await found(anew), []);
  });
});

async function found(transport: Transport): Promise<readonly string[]> {
  return (await transport.read(0, 10)).map((entry) => entry.update.id);
}

async function directory(test: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'hubgate-lmdb-'));
  removeWith(test, path);
  return path;
}

function openHistory(path: string, log: Logger = silentLogger): Promise<Transport> {
  const options = { path, size: 0, maxAgeMs: 0, clock: systemClock, log };
  return openLmdbTransport({ ...options, durability: 'commit' });
}

function event(id: string): Update {
  return { ...update(id), private: true, type: 'hub', presence: true };
}

function update(id: string): Update {
  return { id, topics: ['topic'], data: '', private: false, type: null, retry: null };
}
