import type { TestContext } from 'node:test';
import type { Transport } from '../../src/hub/transport.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { openPostgresTransport } from '../../src/transports/postgres/postgres-transport.ts';
import { openRedisTransport } from '../../src/transports/redis/redis-transport.ts';
import { startPostgres } from './postgres-server.ts';
import { startRedis } from './redis-server.ts';

/** A store with a presence board, whose server a test halts, and whose leases it turns. */
export interface PresenceStore {
  readonly port: number;
  /** Opens its history through a port. */
  open(port: number, presenceClock: Clock): Promise<Transport>;
  /** The processes with a lease. */
  processes(): Promise<readonly string[]>;
  /** As if the lease of a process had run out, if it has one. */
  lapse(process: string): Promise<void>;
  /** Ends all claims to announce a change, and resolves to their number. */
  expireClaims(): Promise<number>;
  halt(): void;
  goOn(): void;
}

type StartStore = (test: TestContext) => Promise<PresenceStore | null>;

const common = { stream: 'test', maxLength: 0, maxAgeMs: 0, random: Math.random } as const;
const around = { clock: systemClock, log: silentLogger };

export const presenceStores: readonly (readonly [name: string, start: StartStore])[] = [
  ['Redis', startRedisStore],
  ['PostgreSQL', startPostgresStore],
];

async function startRedisStore(test: TestContext): Promise<PresenceStore | null> {
  const redis = await startRedis(test, test);
  if (redis === null) return null;
  const members = (key: string): readonly string[] =>
    redis.command('ZRANGE', `{test}:${key}`, '0', '-1').split('\n').filter(Boolean);
  const pid = Number(/process_id:(\d+)/.exec(redis.command('INFO', 'server'))?.[1]);
  return {
    port: redis.port,
    open: (port, presenceClock) =>
      openRedisTransport({
        ...{ ...common, ...around, presenceClock },
        ...{ urls: [new Secret(`redis://127.0.0.1:${port}`)], sentinel: null, cluster: false },
        ...{ trustPoolFile: null, replicas: 0 },
      }),
    processes: async () => members('processes'),
    async lapse(process) {
      redis.command('ZADD', '{test}:processes', 'XX', '1', process);
    },
    async expireClaims() {
      const open = members('claims');
      for (const member of open) redis.command('ZADD', '{test}:claims', 'XX', '1', member);
      return open.length;
    },
    halt: () => process.kill(pid, 'SIGSTOP'),
    goOn: () => process.kill(pid, 'SIGCONT'),
  };
}

async function startPostgresStore(test: TestContext): Promise<PresenceStore | null> {
  const postgres = await startPostgres(test, test);
  if (postgres === null) return null;
  return {
    port: postgres.port,
    open: (port, presenceClock) =>
      openPostgresTransport({
        ...{ ...common, ...around, presenceClock },
        url: new Secret(`postgres://postgres@127.0.0.1:${port}/postgres`),
        ...{ passwordFile: null, listenUrl: null, trustPoolFile: null },
        ...{ schema: 'hubgate', durability: 'commit' },
      }),
    async processes() {
      const rows = await postgres.query('SELECT process FROM hubgate.processes ORDER BY process');
      return rows.map(({ process }) => String(process));
    },
    async lapse(process) {
      await postgres.query('UPDATE hubgate.processes SET until = 1 WHERE process = $1', [process]);
    },
    async expireClaims() {
      const text = 'UPDATE hubgate.departures SET until = 1 RETURNING process';
      return (await postgres.query(text)).length;
    },
    halt: () => postgres.halt(),
    goOn: () => postgres.goOn(),
  };
}
