import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { type Transport, NO_TAIL } from '../../src/hub/transport.ts';
import type { Update } from '../../src/hub/update.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';
import { openPostgresTransport } from '../../src/transports/postgres/postgres-transport.ts';
import { openRedisTransport } from '../../src/transports/redis/redis-transport.ts';

/*
 * Another process that appends to a history: `other-process.ts TRANSPORT PLACE SIZE GROUP…`. PLACE is a directory, or
 * a URL and a stream; SIZE is how many updates are kept. A group is `updates:NAME:COUNT` or `events:NAME:COUNT`;
 * one is stored before the next begins.
 */
const [name, place = '', size = '', ...groups] = process.argv.slice(2);
const common = { maxAgeMs: 0, clock: systemClock, log: silentLogger };
const [url = '', stream = ''] = place.split(' ');
const stored = { ...common, stream, maxLength: Number(size), random: Math.random };
const openers: Readonly<Record<string, () => Promise<Transport>>> = {
  lmdb: () =>
    openLmdbTransport({ ...common, path: place, size: Number(size), durability: 'commit' }),
  redis: () =>
    openRedisTransport({
      ...stored,
      ...{ urls: [new Secret(url)], sentinel: null, cluster: false },
      ...{ trustPoolFile: null, replicas: 0 },
    }),
  postgres: () =>
    openPostgresTransport({
      ...stored,
      ...{ url: new Secret(url), passwordFile: null, listenUrl: null, trustPoolFile: null },
      ...{ schema: 'hubgate', durability: 'commit' },
    }),
};
const transport = await openers[name ?? '']?.();
if (transport === undefined) throw new Error(`no transport ${name}`);
transport.tail(NO_TAIL);
const plain = { topics: ['topic'], data: '', retry: null };
const kinds = {
  updates: { ...plain, private: false, type: null },
  events: { ...plain, private: true, type: 'hub', presence: true },
} as const;
for (const group of groups) {
  const [kind, prefix = '', count = ''] = group.split(':');
  const made = kind === 'events' ? kinds.events : kinds.updates;
  await Promise.all(
    Array.from({ length: Number(count) }, (_, index) => {
      const update: Update = { ...made, id: `${prefix}${index}` };
      return transport.append(update);
    }),
  );
}
await transport.close();
