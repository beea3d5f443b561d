import { join } from 'node:path';
import { parsePostgresUrl } from '../config/postgres-url.ts';
import type { PostgresTransportConfig, TransportConfig } from '../config/transports.ts';
import type { Transport } from '../hub/transport.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import { Secret } from '../kernel/secret.ts';
import { openDespiteDamage } from './damaged-history.ts';
import type { History, HistorySurroundings } from './history.ts';

/** The parts of the process that a transport needs in addition to its settings. */
export interface TransportSurroundings {
  /** Called when an update was added, so that workers with the same history can be woken. */
  readonly appended: () => void;
  readonly scheduler: Scheduler;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The values that determine the location of a history if the configuration leaves it open. */
export interface TransportPlace {
  /** Directory of the gateway's storage, absolute. */
  readonly storage: string;
  /** Identifies a hub of the gateway; the same on every machine. */
  readonly hub: string;
}

interface TransportOpener<Settings extends TransportConfig> {
  /** The settings with everything filled in that was left open. */
  place(settings: Settings, place: TransportPlace): Settings;
  open(settings: Settings, around: TransportSurroundings): Promise<Transport>;
  /** Opens the stored history for the operator; absent if nothing is stored. */
  openHistory?(settings: Settings, around: HistorySurroundings): Promise<History>;
  /** What the owner of the store executes if the gateway may not do so; absent if nothing has to be prepared. */
  setUp?(settings: Settings, role: string | null): Promise<string>;
}

type TransportOpeners = {
  readonly [Kind in TransportConfig['kind']]: TransportOpener<
    Extract<TransportConfig, { kind: Kind }>
  >;
};

/** Each library is loaded when the first hub needs it. */
const openers: TransportOpeners = {
  memory: {
    place: (settings) => settings,
    async open(settings) {
      const { createMemoryTransport } = await import('./memory/memory-transport.ts');
      return createMemoryTransport(settings);
    },
  },
  lmdb: {
    place: (settings, { storage, hub }) => ({
      ...settings,
      path: settings.path ?? join(storage, 'history', encodeURIComponent(hub)),
    }),
    async open({ path, ...settings }, around) {
      const { openLmdbTransport } = await import('./lmdb/lmdb-transport.ts');
      const options = { ...settings, ...around, path: path ?? '.' };
      return openDespiteDamage(() => openLmdbTransport(options), around);
    },
    async openHistory({ path }, { create }) {
      const { openLmdbHistory } = await import('./lmdb/lmdb-history.ts');
      return openLmdbHistory(path ?? '.', { create });
    },
  },
  redis: {
    place: (settings, { hub }) => ({
      ...settings,
      stream: settings.stream ?? `hubgate:${encodeURIComponent(hub)}`,
    }),
    async open({ stream, ...settings }, { clock, log }) {
      const { openRedisTransport } = await import('./redis/redis-transport.ts');
      const random = Math.random;
      return openRedisTransport({ ...settings, stream: stream ?? 'hubgate', random, clock, log });
    },
    async openHistory({ stream, ...settings }, around) {
      const { openRedisHistory } = await import('./redis/redis-history.ts');
      return openRedisHistory({ ...settings, stream: stream ?? 'hubgate' }, around);
    },
  },
  postgres: {
    place: (settings, { hub }) => ({ ...settings, stream: settings.stream ?? hub }),
    async open(settings, { clock, log }) {
      const { openPostgresTransport } = await import('./postgres/postgres-transport.ts');
      const random = Math.random;
      return openPostgresTransport({ ...postgresPlace(settings), random, clock, log });
    },
    async openHistory(settings, around) {
      const { openPostgresHistory } = await import('./postgres/postgres-history.ts');
      return openPostgresHistory(postgresPlace(settings), around);
    },
    async setUp({ schema, url }, role) {
      const { setUpSql } = await import('./postgres/tables.ts');
      const user = url === null ? null : parsePostgresUrl(url.reveal()).user;
      return setUpSql(schema, role ?? user ?? 'hubgate');
    },
  },
};

function postgresPlace({ url, stream, ...settings }: PostgresTransportConfig) {
  return { ...settings, url: url ?? new Secret(''), stream: stream ?? 'hubgate' };
}

/** The settings of a transport with its location: a directory, or the names of its keys. */
export function placeTransport(settings: TransportConfig, place: TransportPlace): TransportConfig {
  return openerOf(settings).place(settings, place);
}

/**
 * @throws HubgateError `transport-failed`, `history-too-new`. A damaged history is opened as one that refuses
 * every operation
 */
export function openTransport(
  settings: TransportConfig,
  around: TransportSurroundings,
): Promise<Transport> {
  return openerOf(settings).open(settings, around);
}

/**
 * @throws HubgateError `not-supported` for a transport that stores nothing, `transport-failed`,
 * `history-damaged`, `history-not-found`, `history-too-new`
 */
export async function openHistory(
  settings: TransportConfig,
  around: HistorySurroundings,
): Promise<History> {
  const history = await openerOf(settings).openHistory?.(settings, around);
  if (history !== undefined) return history;
  const message = `transport ${settings.kind} keeps its history in the memory of the gateway only`;
  throw new HubgateError('not-supported', message);
}

/**
 * The statements that create what a history needs, with the rights of the role that the gateway connects as.
 *
 * @param role null: the one in the configuration
 * @throws HubgateError `not-supported` for a transport that needs no preparation
 */
export async function setUpOf(settings: TransportConfig, role: string | null): Promise<string> {
  const statements = await openerOf(settings).setUp?.(settings, role);
  if (statements !== undefined) return statements;
  throw new HubgateError('not-supported', `transport ${settings.kind} needs no preparation`);
}

function openerOf({ kind }: TransportConfig): TransportOpener<TransportConfig> {
  return openers[kind];
}
