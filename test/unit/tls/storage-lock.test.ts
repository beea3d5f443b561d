import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { silentLogger } from '../../../src/kernel/log.ts';
import { StorageLock } from '../../../src/tls/storage-lock.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('lock of a storage', () => {
  it('is held by one at a time, in a file of its own', async (test) => {
    const { file, acquire } = await setUp(test);
    const first = await acquire();
    assert.ok(first);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.equal(await acquire(), null);
    await first.release();
    assert.equal(existsSync(file), false);
    const second = await acquire();
    assert.ok(second);
    await second.release();
  });

  it('of many that come at once only one gets it', async (test) => {
    const { acquire } = await setUp(test);
    const locks = await Promise.all(Array.from({ length: 20 }, acquire));
    const held = locks.filter((lock) => lock !== null);
    assert.equal(held.length, 1);
    await held[0]?.release();
  });

  it('stays with a holder that is heard of', async (test) => {
    const { file, clock, acquire } = await setUp(test);
    const first = await acquire();
    for (let i = 0; i < 10; i += 1) {
      const before = readFileSync(file, 'utf8');
      clock.advance(15_000);
      await until(() => readFileSync(file, 'utf8') !== before);
      // Its next heartbeat is set only after this one has been written.
      await until(() => clock.waiting > 0);
      assert.equal(await acquire(), null);
    }
    assert.equal(first?.lost.aborted, false);
    await first?.release();
  });

  it('is taken over by exactly one when its holder is gone', async (test) => {
    const { file, clock, acquire } = await setUp(test);
    const gone = { host: 'elsewhere', pid: 1, owner: 'gone', expires: clock.now() + 60_000 };
    writeFileSync(file, JSON.stringify(gone));
    assert.equal(await acquire(), null);
    clock.advance(60_000);
    const locks = await Promise.all(Array.from({ length: 20 }, acquire));
    const held = locks.filter((lock) => lock !== null);
    assert.equal(held.length, 1);
    assert.notEqual(JSON.parse(readFileSync(file, 'utf8')).owner, 'gone');
    await held[0]?.release();
    assert.equal(existsSync(file), false);
  });

  it('a holder that slept too long learns that it has lost, and leaves the other’s alone', async (test) => {
    const { file, acquire, clock } = await setUp(test);
    const sleeper = await acquire();
    assert.ok(sleeper);
    writeFileSync(file, JSON.stringify({ ...JSON.parse(readFileSync(file, 'utf8')), owner: 'x' }));
    const lost = new Promise((resolve) => sleeper.lost.addEventListener('abort', resolve));
    clock.advance(15_000);
    await lost;
    await sleeper.release();
    assert.equal(JSON.parse(readFileSync(file, 'utf8')).owner, 'x');
  });

  it('the beginning of a lock counts by its age', async (test) => {
    const { file, clock, acquire } = await setUp(test, Date.now());
    writeFileSync(file, '{"host"');
    assert.equal(await acquire(), null);
    clock.advance(61_000);
    const lock = await acquire();
    assert.ok(lock);
    await lock.release();
  });

  it('who waits for it gets it', async (test) => {
    const { file, clock, acquire } = await setUp(test);
    const first = await acquire();
    const ran: string[] = [];
    const waiting = StorageLock.during(file, clock, silentLogger, async () => {
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
    assert.equal(existsSync(file), false);
  });
});

async function setUp(test: TestContext, now?: number) {
  const directory = await temporaryDirectory(test);
  const file = join(directory, 'locks', 'name.lock');
  const clock = new TestClock(now);
  const acquire = () => StorageLock.acquire(file, clock, silentLogger);
  const first = await acquire();
  await first?.release();
  return { file, clock, acquire };
}

/** Turns of the event loop until something is so. */
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
}
