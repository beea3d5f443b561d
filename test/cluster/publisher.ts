import { writeSync } from 'node:fs';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';

/*
 * A process that publishes from eight publishers until it is killed: `publisher.ts DIRECTORY ROUND`.
 * Each line says what was begun (+) or acknowledged (=). It is written at once, whatever the reader does:
 * a stream would keep lines for later when the pipe is full, and they would die with the process.
 */
const STDOUT = 1;
const [path = '', round = ''] = process.argv.slice(2);
const options = { path, size: 0, maxAgeMs: 0, clock: systemClock, log: silentLogger };
const transport = await openLmdbTransport({ ...options, durability: 'commit' });
transport.tail(() => {});
setInterval(() => {}, 1000);
await Promise.all(
  Array.from({ length: 8 }, async (_, publisher) => {
    for (let count = 0; ; count += 1) {
      const id = `${round}-${publisher}-${count}`;
      writeSync(STDOUT, `+${id}\n`);
      const data = 'x'.repeat(count % 300);
      const plain = { topics: ['topic'], private: false, type: null, retry: null };
      await transport.append({ ...plain, id, data });
      writeSync(STDOUT, `=${id}\n`);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }),
);
