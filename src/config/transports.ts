// A transport is described in two places: here with its settings, its reach and its storage location, and in
// `transports/registry.ts`, which opens it and loads its library only then.

import { resolve } from 'node:path';
import type { Secret } from '../kernel/secret.ts';
import { byKind, list, type Members, nullable, object, type Shape, withDefault } from './shape.ts';
import { count, duration, flag, name, oneOf, secret } from './shape-values.ts';

/*
 * The transports in a configuration. To add one, add an interface and an entry in the table here, and a
 * folder and a line in src/transports/registry.ts that opens it.
 */

/** A history in the memory of one process. */
interface MemoryTransportConfig {
  readonly kind: 'memory';
  /** Updates kept. */
  readonly size: number;
}

/** A history in a directory of this machine. */
interface LmdbTransportConfig {
  readonly kind: 'lmdb';
  /** null: a directory of this hub in the storage. */
  readonly path: string | null;
  /** Number of updates that are kept; 0 means all. */
  readonly size: number;
  /** 0 means no limit. */
  readonly maxAgeMs: number;
  readonly durability: 'commit' | 'async';
  /** Whether another hub of this configuration may use the same directory. */
  readonly shared: boolean;
}

/** What the histories on a server have in common. */
interface ServerTransportConfig {
  /** Number of updates that are kept; 0 means all. */
  readonly maxLength: number;
  /** 0 means no limit. */
  readonly maxAgeMs: number;
  /** PEM file of the authorities that the server is verified with; null for those of the system. */
  readonly trustPoolFile: string | null;
  /** Whether another hub of this configuration may use the same stream. */
  readonly shared: boolean;
}

/** A history in Redis or Valkey, for several machines. */
export interface RedisTransportConfig extends ServerTransportConfig {
  readonly kind: 'redis';
  /** `redis://` or `rediss://` URLs of the server, of sentinels, or of nodes of a cluster. */
  readonly urls: readonly Secret[];
  /**
   * Name of the primary that the sentinels at the URLs watch; null if the URLs are not those of sentinels.
   */
  readonly sentinel: string | null;
  readonly cluster: boolean;
  /** Prefix of the hub's keys; null: derived from the site's address and the hub's path. */
  readonly stream: string | null;
  /** Replicas that must have an update before it is acknowledged and delivered; 0 for none. */
  readonly replicas: number;
}

/** A history in PostgreSQL, for several machines. */
export interface PostgresTransportConfig extends ServerTransportConfig {
  readonly kind: 'postgres';
  /** `postgres://` or `postgresql://`, possibly with several hosts. */
  readonly url: Secret | null;
  /** File with the password, read for each connection; null if the URL has it, or none is needed. */
  readonly passwordFile: string | null;
  /** The server itself, for LISTEN, if `url` is that of a pooler without sessions. */
  readonly listenUrl: Secret | null;
  /** Schema of the tables. */
  readonly schema: string;
  /** Name of the hub in the tables; null: derived from the site's address and the hub's path. */
  readonly stream: string | null;
  /** What an update is acknowledged after: the commit, its start, or the commit on synchronous standbys as well. */
  readonly durability: 'commit' | 'async' | 'replicated';
}

export type TransportConfig =
  | MemoryTransportConfig
  | LmdbTransportConfig
  | RedisTransportConfig
  | PostgresTransportConfig;

/** The notation of a transport, and its reach. */
interface TransportKind<Settings extends TransportConfig> {
  readonly defaults: Settings;
  readonly options: {
    readonly [Field in Exclude<keyof Settings, 'kind'>]-?: TransportOption<Settings[Field]>;
  };
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

/**
 * Default number of kept updates: about 100 MB with updates of 1 KB. A history without a limit would fill the
 * disk.
 */
const DEFAULT_UPDATES = 100_000;

export const transportKinds: TransportKinds = {
  memory: {
    defaults: { kind: 'memory', size: 1000 },
    options: { size: countOption('size', { min: 1 }) },
    sharedBy: 'nobody',
    store: () => null,
  },
  lmdb: {
    defaults: {
      kind: 'lmdb',
      path: null,
      size: DEFAULT_UPDATES,
      maxAgeMs: 0,
      durability: 'commit',
      shared: false,
    },
    options: {
      path: nameOption('path', 'a directory'),
      size: countOption('size'),
      maxAgeMs: durationOption('max_age'),
      durability: choiceOption('durability', 'commit', 'async'),
      shared: flagOption('shared'),
    },
    sharedBy: 'processes',
    store: ({ path }) => (path === null ? null : { id: resolve(path), shown: path }),
  },
  redis: {
    defaults: {
      kind: 'redis',
      urls: [],
      sentinel: null,
      cluster: false,
      stream: null,
      maxLength: DEFAULT_UPDATES,
      maxAgeMs: 0,
      replicas: 0,
      trustPoolFile: null,
      shared: false,
    },
    options: {
      urls: secretsOption('url', 'a URL such as redis://127.0.0.1:6379'),
      sentinel: nameOption('sentinel', 'the name of the primary that the sentinels watch'),
      cluster: flagOption('cluster'),
      stream: nameOption('stream', 'a name for the keys of this hub'),
      maxLength: countOption('max_length'),
      maxAgeMs: durationOption('max_age'),
      replicas: degreeOption('durability', 'primary', 'replicated'),
      trustPoolFile: nameOption('tls_trust_pool', 'a PEM file'),
      shared: flagOption('shared'),
    },
    sharedBy: 'machines',
    store: ({ urls, stream }) =>
      stream === null
        ? null
        : { id: `${urls.map((url) => url.reveal()).join(' ')} ${stream}`, shown: stream },
  },
  postgres: {
    defaults: {
      kind: 'postgres',
      url: null,
      passwordFile: null,
      listenUrl: null,
      schema: 'hubgate',
      stream: null,
      maxLength: DEFAULT_UPDATES,
      maxAgeMs: 0,
      durability: 'commit',
      trustPoolFile: null,
      shared: false,
    },
    options: {
      url: secretOption('url', 'a URL such as postgres://USER@127.0.0.1:5432/DATABASE'),
      passwordFile: nameOption('password_file', 'a file with the password'),
      listenUrl: secretOption('listen_url', 'the URL of the server itself'),
      schema: wordOption('schema', 'the name of a schema'),
      stream: nameOption('stream', 'a name for this hub'),
      maxLength: countOption('max_length'),
      maxAgeMs: durationOption('max_age'),
      durability: choiceOption('durability', 'commit', 'async', 'replicated'),
      trustPoolFile: nameOption('tls_trust_pool', 'a PEM file'),
      shared: flagOption('shared'),
    },
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
  memory: shapeOf(transportKinds.memory),
  lmdb: shapeOf(transportKinds.lmdb),
  redis: shapeOf(transportKinds.redis),
  postgres: shapeOf(transportKinds.postgres),
});

function shapeOf<Settings extends TransportConfig>({
  options,
  defaults,
}: TransportKind<Settings>): Shape<Omit<Settings, 'kind'>> {
  const entries = Object.entries<TransportOption<unknown>>(options);
  // One shape for each option, with the name of its field.
  const members = Object.fromEntries(
    entries.map(([field, { shape }]) => [field, withDefault(shape, Reflect.get(defaults, field))]),
  ) as unknown as Members<Omit<Settings, 'kind'>>;
  return object(members);
}

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

/** The input of an option in a Hubfile. */
export type OptionInput =
  | { readonly kind: 'flag' }
  | { readonly kind: 'count'; readonly min: number }
  | { readonly kind: 'duration' }
  | { readonly kind: 'name'; readonly expected: string }
  | { readonly kind: 'choice'; readonly choices: readonly string[] }
  | { readonly kind: 'secret'; readonly expected: string }
  | { readonly kind: 'secrets'; readonly expected: string }
  /** A word for 0, or another word followed by a number. */
  | { readonly kind: 'degree'; readonly none: string; readonly some: string };

/** One option of a transport, described once for every notation. */
export interface TransportOption<Value> {
  /** Name in a Hubfile. */
  readonly word: string;
  readonly input: OptionInput;
  /** Shape in YAML and JSON. */
  readonly shape: Shape<Value>;
}

function flagOption(word: string): TransportOption<boolean> {
  return { word, input: { kind: 'flag' }, shape: flag };
}

function countOption(word: string, { min = 0 } = {}): TransportOption<number> {
  return { word, input: { kind: 'count', min }, shape: count({ min }) };
}

/** Milliseconds. */
function durationOption(word: string): TransportOption<number> {
  return { word, input: { kind: 'duration' }, shape: duration() };
}

/** A text that is not empty; null if it is left out. */
function nameOption(word: string, expected: string): TransportOption<string | null> {
  return { word, input: { kind: 'name', expected }, shape: nullable(name(expected)) };
}

/** A text that is not empty. */
function wordOption(word: string, expected: string): TransportOption<string> {
  return { word, input: { kind: 'name', expected }, shape: name(expected) };
}

function choiceOption<const Choice extends string>(
  word: string,
  ...choices: readonly Choice[]
): TransportOption<Choice> {
  return { word, input: { kind: 'choice', choices }, shape: oneOf(...choices) };
}

/** A text that may contain a password; null if it is left out. */
function secretOption(word: string, expected: string): TransportOption<Secret | null> {
  return { word, input: { kind: 'secret', expected }, shape: nullable(secret) };
}

/** Texts that may contain a password. */
function secretsOption(word: string, expected: string): TransportOption<readonly Secret[]> {
  return { word, input: { kind: 'secrets', expected }, shape: list(secret, { min: 1 }) };
}

/** `none` is 0, `some <n>` is n. */
function degreeOption(word: string, none: string, some: string): TransportOption<number> {
  return { word, input: { kind: 'degree', none, some }, shape: count() };
}
