import { writeSync } from 'node:fs';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';
import { openPostgresTransport } from '../../src/transports/postgres/postgres-transport.ts';
import { NO_TAIL } from '../../src/hub/transport.ts';

/*
 * A process that publishes from eight publishers until it is killed: `publisher.ts PLACE ROUND`, where PLACE is a
 * directory for LMDB or the URL of a PostgreSQL server. Each line says what was begun (+) or acknowledged (=). It is
 * written at once, whatever the reader does: a stream would keep lines for later when the pipe is full, and they would
 * die with the process.
 */
const STDOUT = 1;
const [place = '', round = ''] = process.argv.slice(2);
const options = {
  maxAgeMs: 0,
  clock: systemClock,
  log: silentLogger,
  durability: 'commit',
} as const;
const transport = await (place.startsWith('postgres:')
  ? openPostgresTransport({
      ...options,
      ...{ url: new Secret(place), passwordFile: null, listenUrl: null, trustPoolFile: null },
      ...{ schema: 'hubgate', stream: 'test', maxLength: 0, random: Math.random },
    })
  : openLmdbTransport({ ...options, path: place, size: 0 }));
transport.tail(NO_TAIL);
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
