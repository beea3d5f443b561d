// One of several processes that contend for a lock: `lock-contender.ts DIRECTORY CONTENDERS ROUNDS`. A
// contender that holds the lock makes a file that must not be there, and leaves a mark of its turn.
import { randomInt } from 'node:crypto';
import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { type LockFiles, StorageLock } from '../../../src/tls/storage-lock.ts';
import { createPrivate, namesIn, readIfPresent, writePrivate } from '../../../src/tls/storage.ts';

const [directory = '', contenders = '', rounds = ''] = process.argv.slice(2);
/** A lock is new after so many acquisitions, as its directory grows while the test lasts. */
const PER_LOCK = 100;
const MAX_PAUSE_TURNS = 30;

const pause = async (): Promise<void> => {
  for (let turns = randomInt(MAX_PAUSE_TURNS); turns > 0; turns -= 1) await turn();
};
const files: LockFiles = {
  namesIn: async (path) => (await pause(), namesIn(path)),
  readIfPresent: async (path) => (await pause(), readIfPresent(path)),
  createPrivate: async (path, text) => (await pause(), createPrivate(path, text)),
  writePrivate: async (path, text) => (await pause(), writePrivate(path, text)),
};

await Promise.all(Array.from({ length: Number(contenders) }, contend));

async function contend(): Promise<void> {
  for (;;) {
    const entered = readdirSync(directory).filter((name) => name.startsWith('entered-')).length;
    if (entered >= Number(rounds)) return;
    const number = Math.floor(entered / PER_LOCK);
    const place = join(directory, `lock-${number}`);
    const lock = await new StorageLock(place, systemClock, silentLogger, files).acquire();
    if (lock === null) {
      await pause();
      continue;
    }
    const inside = join(directory, `inside-${number}`);
    writeFileSync(inside, '', { flag: 'wx' });
    await pause();
    if (!existsSync(inside)) throw new Error('Another holder has removed the mark');
    writeFileSync(join(directory, `entered-${process.pid}-${process.hrtime.bigint()}`), '');
    rmSync(inside);
    await lock.release();
  }
}
