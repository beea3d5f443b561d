import assert from 'node:assert/strict';
import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { type Logger, silentLogger } from '../../../src/kernel/log.ts';
import { TICKET_KEYS_MS, TicketKeys } from '../../../src/tls/ticket-keys.ts';
import { temporaryDirectory } from '../../support/temporary-directory.ts';
import { TestClock } from '../../support/test-clock.ts';

describe('session ticket keys', () => {
  it('are the same for all processes that share a storage, and private', async (test) => {
    const storage = await temporaryDirectory(test);
    const clock = new TestClock();
    const all = await Promise.all(
      Array.from({ length: 8 }, () =>
        new Follower(new TicketKeys(storage, clock, silentLogger)).start(),
      ),
    );
    const [first] = all;
    assert.equal(first?.latest.length, 48);
    for (const { latest } of all) assert.ok(latest.equals(first.latest));
    const directory = join(storage, 'tls', 'ticket-keys');
    const files = await readdir(directory);
    assert.equal(files.length, 1);
    assert.equal((await stat(directory)).mode & 0o777, 0o700);
    assert.equal((await stat(join(directory, files[0] ?? ''))).mode & 0o777, 0o600);
  });

  it('change every 12 hours for all processes, and the old ones are deleted from disk', async (test) => {
    const storage = await temporaryDirectory(test);
    const clock = new TestClock();
    const [one, two] = [
      await new Follower(new TicketKeys(storage, clock, silentLogger)).start(),
      await new Follower(new TicketKeys(storage, clock, silentLogger)).start(),
    ];
    const [before] = await stored(storage);
    const changed = [one.next(), two.next()];
    clock.advance(TICKET_KEYS_MS);
    const [a, b] = await Promise.all(changed);
    assert.ok(a !== undefined && b !== undefined && a.equals(b));
    assert.notEqual(a.toString('base64'), before);
    assert.deepEqual(await stored(storage), [a.toString('base64')]);
  });

  it('are taken over if another process has already begun the period', async (test) => {
    const storage = await temporaryDirectory(test);
    const ahead = new TestClock(TICKET_KEYS_MS * 1000);
    const early = await new Follower(new TicketKeys(storage, ahead, silentLogger)).start();
    const behind = new TestClock(TICKET_KEYS_MS * 1000 - 1);
    const late = await new Follower(new TicketKeys(storage, behind, silentLogger)).start();
    assert.ok(late.latest.equals(early.latest));
    const wrong = new TestClock(TICKET_KEYS_MS * 998);
    const other = await new Follower(new TicketKeys(storage, wrong, silentLogger)).start();
    assert.ok(!other.latest.equals(early.latest), 'a clock that is wrong by days leads nobody');
  });

  it('are not rotated while nothing uses them', async (test) => {
    const storage = await temporaryDirectory(test);
    const clock = new TestClock();
    const keys = new TicketKeys(storage, clock, silentLogger);
    const follower = await new Follower(keys).start();
    const before = await stored(storage);
    follower.stop();
    clock.advance(10 * TICKET_KEYS_MS);
    assert.deepEqual(await stored(storage), before);
    const again = await new Follower(keys).start();
    assert.ok(!again.latest.equals(follower.latest));
    assert.deepEqual(await stored(storage), [again.latest.toString('base64')]);
  });

  it('stay in the process if the storage cannot keep them, which is logged', async (test) => {
    const storage = await temporaryDirectory(test);
    await writeFile(join(storage, 'tls'), 'not a directory');
    await chmod(join(storage, 'tls'), 0o600);
    const warnings: string[] = [];
    const log: Logger = { ...silentLogger, warn: (message) => void warnings.push(message) };
    const { latest } = await new Follower(new TicketKeys(storage, new TestClock(), log)).start();
    assert.equal(latest.length, 48);
    assert.deepEqual(warnings, ['Session tickets are not shared: their keys cannot be stored']);
  });
});

async function stored(storage: string): Promise<string[]> {
  const directory = join(storage, 'tls', 'ticket-keys');
  const files = await readdir(directory);
  return Promise.all(files.map((file) => readFile(join(directory, file), 'utf8')));
}

class Follower {
  latest = Buffer.alloc(0);
  stop: () => void = () => {};
  readonly #keys: TicketKeys;
  #wake: (keys: Buffer) => void = () => {};

  constructor(keys: TicketKeys) {
    this.#keys = keys;
  }

  async start(): Promise<this> {
    this.stop = await this.#keys.follow((keys) => {
      this.latest = Buffer.from(keys);
      this.#wake(keys);
    });
    return this;
  }

  /** Call it before the clock is turned. */
  next(): Promise<Buffer> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }
}
