// A transport is described in two places: here with its settings, its reach and its storage location, and in
// `transports/registry.ts`, which opens it and loads its library only then.

import { resolve } from 'node:path';
import {
  byKind,
  defaultsOf,
  list,
  type Members,
  object,
  type Of,
  optional,
  type Shape,
  withDefault,
} from './shape.ts';
import { count, duration, flag, name, oneOf, secret, secretText } from './shape-values.ts';

/*
 * The transports in a configuration. To add one, add its members and an entry in the table here, the options of
 * a Hubfile in src/directives/hub/transport.ts, and a folder and a line in src/transports/registry.ts that opens it.
 */

/**
 * Default number of kept updates: about 100 MB with updates of 1 KB. A history without a limit would fill the
 * disk.
 */
const DEFAULT_UPDATES = 100_000;

const memoryMembers = {
  /** Updates kept. */
  size: withDefault(count({ min: 1 }), 1000),
};

/** A history in the memory of one process. */
interface MemoryTransportConfig extends Of<typeof memoryMembers> {
  readonly kind: 'memory';
}

const lmdbMembers = {
  /** null: a directory of this hub in the storage. */
  path: optional(name('a directory')),
  /** Number of updates that are kept; 0 means all. */
  size: withDefault(count(), DEFAULT_UPDATES),
  /** 0 means no limit. */
  maxAgeMs: withDefault(duration(), 0),
  durability: withDefault(oneOf('commit', 'async'), 'commit'),
  /** Whether another hub of this configuration may use the same directory. */
  shared: withDefault(flag, false),
};

/** A history in a directory of this machine. */
interface LmdbTransportConfig extends Of<typeof lmdbMembers> {
  readonly kind: 'lmdb';
}

/** How much a history on a server keeps. */
const retentionMembers = {
  /** Number of updates that are kept; 0 means all. */
  maxLength: withDefault(count(), DEFAULT_UPDATES),
  /** 0 means no limit. */
  maxAgeMs: withDefault(duration(), 0),
};

/** What the histories on a server have in common besides. */
const serverMembers = {
  /** PEM file of the authorities that the server is verified with; null for those of the system. */
  trustPoolFile: optional(name('a PEM file')),
  /** Whether another hub of this configuration may use the same stream. */
  shared: withDefault(flag, false),
};

const redisMembers = {
  /** `redis://` or `rediss://` URLs of the server, of sentinels, or of nodes of a cluster. */
  urls: withDefault(list(secret, { min: 1 }), []),
  /**
   * Name of the primary that the sentinels at the URLs watch; null if the URLs are not those of sentinels.
   */
  sentinel: optional(name('the name of the primary that the sentinels watch')),
  cluster: withDefault(flag, false),
  /** Prefix of the hub's keys; null: derived from the site's address and the hub's path. */
  stream: optional(name('a name for the keys of this hub')),
  ...retentionMembers,
  /** Replicas that must have an update before it is acknowledged and delivered; 0 for none. */
  replicas: withDefault(count(), 0),
  ...serverMembers,
};

/** A history in Redis or Valkey, for several machines. */
export interface RedisTransportConfig extends Of<typeof redisMembers> {
  readonly kind: 'redis';
}

const postgresMembers = {
  /** `postgres://` or `postgresql://`, possibly with several hosts. */
  url: optional(secretText('a URL such as postgres://USER@127.0.0.1:5432/DATABASE')),
  /** File with the password, read for each connection; null if the URL has it, or none is needed. */
  passwordFile: optional(name('a file with the password')),
  /** The server itself, for LISTEN, if `url` is that of a pooler without sessions. */
  listenUrl: optional(secretText('the URL of the server itself')),
  /** Schema of the tables. */
  schema: withDefault(name('the name of a schema'), 'hubgate'),
  /** Name of the hub in the tables; null: derived from the site's address and the hub's path. */
  stream: optional(name('a name for this hub')),
  ...retentionMembers,
  /** What an update is acknowledged after: the commit, its start, or the commit on synchronous standbys as well. */
  durability: withDefault(oneOf('commit', 'async', 'replicated'), 'commit'),
  ...serverMembers,
};

/** A history in PostgreSQL, for several machines. */
export interface PostgresTransportConfig extends Of<typeof postgresMembers> {
  readonly kind: 'postgres';
}

export type TransportConfig =
  | MemoryTransportConfig
  | LmdbTransportConfig
  | RedisTransportConfig
  | PostgresTransportConfig;

/** The members of a transport, and its reach. */
interface TransportKind<Settings extends TransportConfig> {
  readonly members: Members<Omit<Settings, 'kind'>>;
  readonly defaults: Settings;
  /** The processes that can share a history of this kind. */
  readonly sharedBy: 'nobody' | 'processes' | 'machines';
  /** The location of the history; null if each hub has its own anyway. */
  readonly store: (settings: Settings) => Store | null;
}

/** A location that two hubs may share only if both have `shared`. */
interface Store {
  /** Different for every two locations. It may contain a secret. */
  readonly id: string;
  /** For messages. */
  readonly shown: string;
}

type TransportKinds = {
  readonly [Kind in TransportConfig['kind']]: TransportKind<
    Extract<TransportConfig, { kind: Kind }>
  >;
};

export const transportKinds: TransportKinds = {
  memory: {
    members: memoryMembers,
    defaults: { kind: 'memory', ...defaultsOf(memoryMembers) },
    sharedBy: 'nobody',
    store: () => null,
  },
  lmdb: {
    members: lmdbMembers,
    defaults: { kind: 'lmdb', ...defaultsOf(lmdbMembers) },
    sharedBy: 'processes',
    store: ({ path }) => (path === null ? null : { id: resolve(path), shown: path }),
  },
  redis: {
    members: redisMembers,
    defaults: { kind: 'redis', ...defaultsOf(redisMembers) },
    sharedBy: 'machines',
    store: ({ urls, stream }) =>
      stream === null
        ? null
        : { id: `${urls.map((url) => url.reveal()).join(' ')} ${stream}`, shown: stream },
  },
  postgres: {
    members: postgresMembers,
    defaults: { kind: 'postgres', ...defaultsOf(postgresMembers) },
    sharedBy: 'machines',
    store: ({ url, schema, stream }) =>
      stream === null
        ? null
        : { id: `${url?.reveal() ?? ''} ${schema} ${stream}`, shown: `${schema} ${stream}` },
  },
};

export const TRANSPORT_KINDS = Object.keys(transportKinds) as readonly TransportConfig['kind'][];

/** Whether other processes can see the history. Otherwise each worker would have its own. */
export function isShared({ kind }: TransportConfig): boolean {
  return transportKinds[kind].sharedBy !== 'nobody';
}

/** The location of a history; null if only this hub uses it anyway. */
export function storeOf(transport: TransportConfig): Store | null {
  // The entry in the table is the one for this kind.
  const kind = transportKinds[transport.kind] as TransportKind<TransportConfig>;
  const store = kind.store(transport);
  return store === null ? null : { ...store, id: `${transport.kind} ${store.id}` };
}

export const transportShape: Shape<TransportConfig> = byKind<TransportConfig>({
  memory: object(memoryMembers),
  lmdb: object(lmdbMembers),
  redis: object(redisMembers),
  postgres: object(postgresMembers),
});

/**
 * A whole number with commas between groups of three digits. `toLocaleString` would load the tables of locales,
 * which are 6 MB that stay in memory.
 */
function grouped(number: number): string {
  return String(number).replace(/\B(?=(?:\d{3})+$)/g, ',');
}

/** Describes how much a transport keeps. */
export function keptBy(transport: TransportConfig): string {
  const updates = 'maxLength' in transport ? transport.maxLength : transport.size;
  const count = updates === 0 ? 'all updates' : `the newest ${grouped(updates)} updates`;
  const maxAgeMs = transport.kind === 'memory' ? 0 : transport.maxAgeMs;
  return maxAgeMs === 0 ? count : `${count}, none older than ${Math.round(maxAgeMs / 1000)} s`;
}
