import { after, type TestContext } from 'node:test';
import { type HistoryEntry, type Transport, NO_TAIL } from '../../src/hub/transport.ts';
import type { Update } from '../../src/hub/update.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import {
  openPostgresTransport,
  type PostgresTransportOptions,
} from '../../src/transports/postgres/postgres-transport.ts';
import { type PostgresServer, startPostgres } from './postgres-server.ts';
import { follow } from './follow.ts';

type Options = Partial<Omit<PostgresTransportOptions, 'url'>> & { readonly url: string };

/** Opens a history in the stream `test` of the schema `hubgate`, which is closed with the test. */
export async function openHistory(
  test: TestContext,
  { url, ...options }: Options,
): Promise<Transport> {
  const transport = await openPostgresTransport({
    ...{ url: new Secret(url), passwordFile: null, listenUrl: null, trustPoolFile: null },
    ...{ schema: 'hubgate', stream: 'test', durability: 'commit', maxLength: 0, maxAgeMs: 0 },
    ...{ random: Math.random, clock: systemClock, log: silentLogger, ...options },
  });
  transport.tail(NO_TAIL);
  test.after(() => transport.close());
  // The transport's own timers keep no process alive.
  const alive = setInterval(() => {}, 1000);
  test.after(() => clearInterval(alive));
  return transport;
}

/** One server for all tests of a file, with a database for each of them. */
export function sharedPostgres(): (test: TestContext) => Promise<PostgresServer | null> {
  let server: Promise<PostgresServer | null> | undefined;
  let databases = 0;
  const ends: (() => unknown)[] = [];
  after(async () => {
    for (const end of ends.toReversed()) await end();
  });
  return async (test) => {
    server ??= startPostgres(test, { after: (end) => ends.push(end) });
    const started = await server;
    if (started === null) return null;
    databases += 1;
    const name = `test${databases}`;
    await started.query(`CREATE DATABASE ${name}`);
    return started.database(name);
  };
}

/** All that a transport delivers. */
export function collect(transport: Transport): HistoryEntry[] {
  const seen: HistoryEntry[] = [];
  follow(transport, (entries) => seen.push(...entries));
  return seen;
}

export function ids(entries: readonly HistoryEntry[]): readonly string[] {
  return entries.map(({ update: { id } }) => id);
}

export function update(id: string, data = ''): Update {
  return { id, topics: ['topic'], data, private: false, type: null, retry: null };
}

/** Resolves when a condition holds, which is asked every few milliseconds. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (let asked = 0; asked < 20_000; asked += 1) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(`never: ${condition.toString()}`);
}
