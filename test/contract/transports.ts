import { execFileSync } from 'node:child_process';
import { mkdtemp, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { after, type TestContext } from 'node:test';
import {
  PRESENCE_EVENTS_KEPT,
  SHARED_PRESENCE_EVENTS_KEPT,
  type Transport,
} from '../../src/hub/transport.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { silentLogger } from '../../src/kernel/log.ts';
import { openLmdbTransport } from '../../src/transports/lmdb/lmdb-transport.ts';
import { createMemoryTransport } from '../../src/transports/memory/memory-transport.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { openPostgresTransport } from '../../src/transports/postgres/postgres-transport.ts';
import { openRedisTransport } from '../../src/transports/redis/redis-transport.ts';
import { type PostgresServer, startPostgres } from '../support/postgres-server.ts';
import { programPath } from '../support/program.ts';
import { type RedisServer, startRedis } from '../support/redis-server.ts';
import { removeWith } from '../support/temporary-directory.ts';
import { SOURCE } from '../support/process.ts';

interface HistoryLimits {
  /** Updates kept. */
  readonly size: number;
  readonly maxAgeMs?: number;
  readonly clock?: Clock;
}

/** One history of a transport: where it is durable, every opening is the same history. */
export interface TestHistory {
  open(): Promise<Transport>;
  /** Another process, for which this one waits without a turn of its event loop, adds groups of entries. */
  readonly appendElsewhere?: (groups: readonly string[]) => void;
  /** Makes storing fail until the returned function is called; absent where it cannot fail. */
  readonly breakStore?: () => Promise<() => void>;
}

export interface Implementation {
  readonly name: string;
  /** Another opening, and another process, sees the same history. */
  readonly isShared: boolean;
  /** It has a limit of age, and turns on the clock that it is given. */
  readonly hasAge: boolean;
  /** Presence events that it keeps. */
  readonly keptEvents: number;
  /** null: skipped, the test has said why. */
  log(test: TestContext, limits: HistoryLimits): Promise<TestHistory | null>;
}

/** Every transport. A new one is added here, and passes the whole suite. */
export const implementations: readonly Implementation[] = [
  {
    name: 'memory',
    isShared: false,
    hasAge: false,
    keptEvents: PRESENCE_EVENTS_KEPT,
    async log(_test, { size }) {
      return { open: async () => createMemoryTransport({ size }) };
    },
  },
  {
    name: 'lmdb',
    isShared: true,
    hasAge: true,
    keptEvents: SHARED_PRESENCE_EVENTS_KEPT,
    async log(test, { size, maxAgeMs = 0, clock = systemClock }) {
      const path = await mkdtemp(join(tmpdir(), 'hubgate-lmdb-'));
      removeWith(test, path);
      return {
        open: () =>
          openLmdbTransport({
            ...{ path, size, maxAgeMs, clock },
            durability: 'commit',
            log: silentLogger,
          }),
        appendElsewhere: (groups) => otherProcess(['lmdb', path, String(size)], groups),
        // As on a full disk: what needs more room than the file has is refused by the system.
        async breakStore() {
          const prlimit = programPath(test, 'prlimit', 'util-linux') ?? 'prlimit';
          const { size: bytes } = await stat(join(path, 'history.mdb'));
          const limit = (text: string): void => {
            execFileSync(prlimit, ['--pid', String(process.pid), `--fsize=${text}:`]);
          };
          limit(String(bytes));
          return () => limit('unlimited');
        },
      };
    },
  },
  {
    name: 'redis',
    isShared: true,
    // It goes by the clock of the server.
    hasAge: false,
    keptEvents: SHARED_PRESENCE_EVENTS_KEPT,
    async log(test, { size, clock = systemClock }) {
      const server = await redisOf(test);
      if (server === null) return null;
      const stream = `test:${randomUUID()}`;
      return {
        open: () =>
          openRedisTransport({
            ...{ urls: [new Secret(server.url)], sentinel: null, cluster: false },
            ...{ trustPoolFile: null, stream, maxLength: size, maxAgeMs: 0, replicas: 0 },
            ...{ random: Math.random, clock, log: silentLogger },
          }),
        appendElsewhere: (groups) =>
          otherProcess(['redis', `${server.url} ${stream}`, String(size)], groups),
        async breakStore() {
          server.command('CONFIG', 'SET', 'maxmemory', '1');
          return () => server.command('CONFIG', 'SET', 'maxmemory', '0');
        },
      };
    },
  },
  {
    name: 'postgres',
    isShared: true,
    // It goes by the clock of the server.
    hasAge: false,
    keptEvents: SHARED_PRESENCE_EVENTS_KEPT,
    async log(test, { size, clock = systemClock }) {
      const server = await postgresOf(test);
      const psql = programPath(test, 'psql', 'postgresql-client');
      if (server === null || psql === null) return null;
      const stream = `test:${randomUUID()}`;
      const run = (text: string): void => void execFileSync(psql, ['-Xqc', text, server.url]);
      return {
        open: () =>
          openPostgresTransport({
            ...{ url: new Secret(server.url), passwordFile: null, trustPoolFile: null },
            ...{ listenUrl: null, schema: 'hubgate', stream, durability: 'commit' },
            ...{ maxLength: size, maxAgeMs: 0 },
            ...{ random: Math.random, clock, log: silentLogger },
          }),
        appendElsewhere: (groups) =>
          otherProcess(['postgres', `${server.url} ${stream}`, String(size)], groups),
        async breakStore() {
          run('ALTER TABLE hubgate.entries ADD CONSTRAINT small CHECK (size < 1000000) NOT VALID');
          return () => run('ALTER TABLE hubgate.entries DROP CONSTRAINT small');
        },
      };
    },
  },
];

function otherProcess(log: readonly string[], groups: readonly string[]): void {
  const program = join(import.meta.dirname, 'other-process.ts');
  execFileSync(process.execPath, [...SOURCE, program, ...log, ...groups]);
}

let redis: Promise<RedisServer | null> | undefined;
/** Run at the end of the file: `after` inside a test would be that test's. */
const ends: (() => unknown)[] = [];
after(async () => {
  for (const end of ends) await end();
});

let postgres: Promise<PostgresServer | null> | undefined;

function postgresOf(test: TestContext): Promise<PostgresServer | null> {
  postgres ??= startPostgres(test, { after: (end) => ends.push(end) });
  return postgres;
}

/** One server for the whole file. */
function redisOf(test: TestContext): Promise<RedisServer | null> {
  redis ??= startRedis(test, { after: (end) => ends.push(end) });
  return redis;
}
