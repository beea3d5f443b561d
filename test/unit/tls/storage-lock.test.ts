import assert from 'node:assert/strict';
import { once } from 'node:events';
import { fork } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { silentLogger } from '../../../src/kernel/log.ts';
import { type LockFiles, StorageLock } from '../../../src/tls/storage-lock.ts';
import { createPrivate, namesIn, readIfPresent, writePrivate } from '../../../src/tls/storage.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';
import { TestClock } from '../../support/test-clock.ts';
import { rounds } from '../../support/rounds.ts';

/** Acquisitions in the test with several processes. */
const ROUNDS = rounds(100, 200);
const PROCESSES = 4;
const CONTENDERS = 20;
const YEAR_MS = 365 * 24 * 60 * 60 * 1000;

describe('lock of a storage', () => {
  it('is held by one process at a time, in a private file', async (test) => {
    const { acquire, newest } = await setUp(test);
    const first = await acquire();
    assert.ok(first);
    assert.equal(statSync(newest()).mode & 0o777, 0o600);
    assert.equal(await acquire(), null);
    await first.release();
    const second = await acquire();
    assert.ok(second);
    await second.release();
  });

  it('goes to one of many contenders that arrive at once', async (test) => {
    const { acquire } = await setUp(test);
    const locks = await Promise.all(Array.from({ length: CONTENDERS }, () => acquire()));
    const held = locks.filter((lock) => lock !== null);
    assert.equal(held.length, 1);
    await held[0]?.release();
  });

  it('expires by itself if its end cannot be written, and says so', async (test) => {
    const { directory, clock, acquire } = await setUp(test);
    const lines: string[] = [];
    const log = { ...silentLogger, warn: (message: string) => lines.push(message) };
    const full = () => Promise.reject(new Error('ENOSPC: no space left on device'));
    const files = { createPrivate, namesIn, readIfPresent, writePrivate: full };
    const first = await new StorageLock(directory, clock, log, files).acquire();
    await first?.release();
    assert.deepEqual(lines, ['A lock could not be released, and is free when it expires']);
    assert.equal(await acquire(), null);
    clock.advance(60_000);
    const second = await acquire();
    assert.ok(second);
    await second.release();
  });

  it('stays with a holder that refreshes it', async (test) => {
    const { newest, clock, acquire } = await setUp(test);
    const first = await acquire();
    for (let i = 0; i < 10; i += 1) {
      const before = readFileSync(newest(), 'utf8');
      clock.advance(15_000);
      await until(() => readFileSync(newest(), 'utf8') !== before);
      // Its next heartbeat is set only after this one has been written.
      await until(() => clock.waiting > 0);
      assert.equal(await acquire(), null);
    }
    assert.equal(first?.lost.aborted, false);
    await first?.release();
  });

  it('is taken over by exactly one contender when its holder is gone', async (test) => {
    const { newest, clock, acquire } = await setUp(test);
    const { expires } = abandon(newest(), clock.now() + 60_000);
    assert.equal(await acquire(), null);
    clock.advance(expires - clock.now());
    const locks = await Promise.all(Array.from({ length: CONTENDERS }, () => acquire()));
    const held = locks.filter((lock) => lock !== null);
    assert.equal(held.length, 1);
    assert.notEqual(JSON.parse(readFileSync(newest(), 'utf8')).owner, 'gone');
    await held[0]?.release();
  });

  for (const operation of ['namesIn', 'readIfPresent', 'createPrivate'] as const) {
    for (const pauseMs of [1_000, 70_000, 200_000]) {
      it(`has one holder when a contender pauses for ${pauseMs} ms before ${operation}`, async (test) => {
        const { directory, clock, newest, acquire } = await setUp(test);
        for (let count = 1; ; count += 1) {
          abandon(newest(), clock.now());
          const { files, paused, resume } = pausing(operation, count);
          const slow = new StorageLock(directory, clock, silentLogger, files).acquire();
          // After its last call no pause follows.
          if (!(await Promise.race([paused.then(() => true), slow.then(() => false)]))) return;
          // Others come meanwhile. They take over, release and remove what is old; the last one stays.
          const others: Awaited<ReturnType<typeof acquire>>[] = [];
          for (let i = 0; i < 4; i += 1) {
            await others.at(-1)?.release();
            clock.advance(pauseMs / 4);
            others.push(await acquire());
          }
          resume();
          const held = [await slow, others.at(-1) ?? null].filter((lock) => lock !== null);
          assert.equal(held.length, 1, `before call ${count}`);
          await held[0]?.release();
        }
      });
    }
  }

  it(`is never held twice by ${CONTENDERS} contenders in ${PROCESSES} processes (${ROUNDS} rounds)`, async (test) => {
    const directory = await temporaryDirectory(test);
    const contender = fileURLToPath(new URL('lock-contender.ts', import.meta.url));
    const args = [directory, String(CONTENDERS / PROCESSES), String(ROUNDS)];
    const ended = Array.from({ length: PROCESSES }, async () => {
      const child = fork(contender, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
      test.after(() => child.kill('SIGKILL'));
      const [code] = await once(child, 'exit');
      return code;
    });
    assert.deepEqual(await Promise.all(ended), Array(PROCESSES).fill(0));
    const entered = readdirSync(directory).filter((name) => name.startsWith('entered-'));
    assert.ok(entered.length >= ROUNDS, `${entered.length} acquisitions`);
  });

  it('tells a holder that slept too long that it has lost the lock, and leaves the next generation alone', async (test) => {
    const { directory, acquire, clock, newest } = await setUp(test);
    const sleeper = await acquire();
    assert.ok(sleeper);
    abandon(join(directory, '99'), clock.now() + 60_000);
    const lost = new Promise((resolve) => sleeper.lost.addEventListener('abort', resolve));
    clock.advance(15_000);
    await lost;
    await sleeper.release();
    assert.equal(JSON.parse(readFileSync(newest(), 'utf8')).owner, 'gone');
  });

  it('is taken over after a minute without a change if its holder died while the clock was ahead', async (test) => {
    const { directory, newest, clock } = await setUp(test);
    abandon(newest(), clock.now() + YEAR_MS);
    const waiting = new StorageLock(directory, clock, silentLogger);
    assert.equal(await waiting.acquire(), null);
    clock.advance(59_999);
    assert.equal(await waiting.acquire(), null);
    // It lives after all.
    abandon(newest(), clock.now() + YEAR_MS);
    clock.advance(1);
    assert.equal(await waiting.acquire(), null);
    clock.advance(60_000);
    const lock = await waiting.acquire();
    assert.ok(lock);
    assert.equal(JSON.parse(readFileSync(newest(), 'utf8')).expires, clock.now() + 60_000);
    await lock.release();
  });

  it('stays with a holder that lives while the clock is set back, and a stopped holder loses it', async (test) => {
    const { directory, newest, clock, acquire } = await setUp(test);
    const holder = await acquire();
    const waiting = new StorageLock(directory, clock, silentLogger);
    clock.setBy(-YEAR_MS);
    for (let i = 0; i < 8; i += 1) {
      const before = readFileSync(newest(), 'utf8');
      assert.equal(await waiting.acquire(), null);
      clock.advance(15_000);
      await until(() => readFileSync(newest(), 'utf8') !== before);
      await until(() => clock.waiting > 0);
    }
    assert.equal(holder?.lost.aborted, false);
    clock.setBy(-YEAR_MS);
    clock.stall(60_000);
    const lost = new Promise((resolve) => holder.lost.addEventListener('abort', resolve));
    clock.advance(0);
    await lost;
    await holder.release();
  });

  it('judges an incomplete file by its age', async (test) => {
    const { newest, clock, acquire } = await setUp(test, Date.now());
    writeFileSync(newest(), '{"host"');
    assert.equal(await acquire(), null);
    clock.advance(61_000);
    const lock = await acquire();
    assert.ok(lock);
    await lock.release();
  });

  it('removes generations that were superseded long ago, and keeps the others', async (test) => {
    const { directory, clock, acquire } = await setUp(test);
    for (let i = 0; i < 5; i += 1) await (await acquire())?.release();
    assert.equal(readdirSync(directory).length, 6);
    clock.advance(120_000);
    await (await acquire())?.release();
    // The last of the old ones has been the highest until now.
    assert.deepEqual(readdirSync(directory).sort(), ['6', '7']);
  });

  it('goes to a waiting task', async (test) => {
    const { directory, clock, acquire } = await setUp(test);
    const first = await acquire();
    const ran: string[] = [];
    const waiting = new StorageLock(directory, clock, silentLogger).during(async () => {
      ran.push('the task');
    });
    clock.advance(1000);
    assert.deepEqual(ran, []);
    await first?.release();
    while (ran.length === 0) {
      clock.advance(100);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await waiting;
    assert.ok(await acquire());
  });
});

async function setUp(test: TestContext, now?: number) {
  const directory = join(await temporaryDirectory(test), 'locks', 'name.lock.d');
  mkdirSync(directory, { recursive: true });
  const clock = new TestClock(now);
  const acquire = () => new StorageLock(directory, clock, silentLogger).acquire();
  const first = await acquire();
  await first?.release();
  const newest = (): string =>
    join(
      directory,
      String(
        Math.max(
          ...readdirSync(directory)
            .filter((n) => /^\d+$/.test(n))
            .map(Number),
        ),
      ),
    );
  return { directory, clock, acquire, newest };
}

/** Writes a generation as a holder leaves it that ends without a word. */
function abandon(file: string, expires: number) {
  const gone = { host: 'elsewhere', pid: 1, owner: 'gone', since: expires - 60_000, expires };
  writeFileSync(file, JSON.stringify(gone));
  return gone;
}

/** File operations of which the so-manieth call of one kind waits before it is carried out. */
function pausing(operation: keyof LockFiles, count: number) {
  let [arrive, resume] = [() => {}, () => {}];
  const paused = new Promise<void>((resolve) => (arrive = resolve));
  const resumed = new Promise<void>((resolve) => (resume = resolve));
  let calls = 0;
  const before = async (name: keyof LockFiles): Promise<void> => {
    if (name !== operation) return;
    calls += 1;
    if (calls !== count) return;
    arrive();
    await resumed;
  };
  const files: LockFiles = {
    namesIn: async (path) => (await before('namesIn'), namesIn(path)),
    readIfPresent: async (path) => (await before('readIfPresent'), readIfPresent(path)),
    createPrivate: async (path, text) => (await before('createPrivate'), createPrivate(path, text)),
    writePrivate: async (path, text) => (await before('writePrivate'), writePrivate(path, text)),
  };
  return { files, paused, resume: () => resume() };
}

/** Turns of the event loop until something is so. */
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
}
