import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { resolve } from 'node:path';
import { checkHub } from './config/check-hub.ts';
import { checkTransport } from './config/check.ts';
import type { PostgresTransportConfig, RedisTransportConfig } from './config/transports.ts';
import type { HubConfig } from './config/config.ts';
import { ConfigError, error, hasError, type Problem, type Report } from './config/problem.ts';
import { hubShape } from './config/shape-hub.ts';
import {
  CLOCK_FUNCTIONS,
  LOG_FUNCTIONS,
  readGiven,
  requireFunctions,
} from './config/program-data.ts';
import { list, object, optional, withDefault } from './config/shape.ts';
import { flag, text } from './config/shape-values.ts';
import { defaultSite } from './config/shape-config.ts';
import { parsePublication } from './hub/publication.ts';
import { type Clock, systemClock } from './kernel/clock.ts';
import { HubgateError } from './kernel/error.ts';
import { type Logger, silentLogger } from './kernel/log.ts';
import { Scope } from './kernel/scope.ts';
import { ResponseCaches } from './cache/response-caches.ts';
import { Scheduler } from './kernel/scheduler.ts';
import { TimerWheel } from './kernel/timer-wheel.ts';
import { checkHubKeys } from './runtime/check-parts.ts';
import { createHubCores } from './runtime/hub-core.ts';
import { createKeySets, setUpHub } from './runtime/hub-setup.ts';
import { HubSignals } from './runtime/peer-workers.ts';
import { mountedExchange } from './server/mounted-exchange.ts';

export { HubgateError } from './kernel/error.ts';
export { ConfigError } from './config/problem.ts';

/** A key for verifying tokens: a secret or PEM, or a JWK Set. */
export type HubKey =
  | { readonly key: string; readonly algorithm?: string }
  | { readonly jwksUri: string; readonly algorithms?: readonly string[] };

/** A hub to mount in a server of your own. Options that are left out have the defaults of the Hubfile. */
export interface HubOptions
  extends Partial<
    Pick<
      HubConfig,
      | 'profile'
      | 'path'
      | 'detailType'
      | 'anonymous'
      | 'subscriptions'
      | 'debugger'
      | 'playground'
      | 'cookieName'
      | 'corsOrigins'
      | 'publishOrigins'
      | 'publicUrls'
      | 'resourceIdentifier'
      | 'heartbeatMs'
      | 'writeTimeoutMs'
      | 'dispatchTimeoutMs'
      | 'maxRequestBodySize'
      | 'maxConnections'
      | 'maxConnectionsPerClient'
      | 'maxSubscriberBuffer'
      | 'maxPatternSize'
      | 'protocolVersionCompatibility'
      | 'legacyForms'
    >
  > {
  readonly issuers: readonly {
    /** Compared byte for byte with a token's `iss`. */
    readonly id: string;
    readonly publisher?: HubKey;
    readonly subscriber?: HubKey;
    readonly authorizationServer?: boolean;
  }[];
  /** Keys of 0.x tokens without an issuer; only with `protocolVersionCompatibility`. */
  readonly legacy?: { readonly publisher?: HubKey; readonly subscriber?: HubKey };
  /** Directory of the history; without it the newest 1,000 updates are kept in memory. */
  readonly history?: string;
  /** Keeps the history in Redis or Valkey instead, for hubs on several machines. */
  readonly redis?: Partial<Omit<RedisTransportConfig, 'kind' | 'urls'>> & {
    /** `redis://` or `rediss://`; several for sentinels or a cluster. */
    readonly urls: readonly string[];
    /** Prefix of this hub's keys, the same on every machine. */
    readonly stream: string;
  };
  /** Keeps the history in PostgreSQL instead, for hubs on several machines. */
  readonly postgres?: Partial<Omit<PostgresTransportConfig, 'kind' | 'url' | 'listenUrl'>> & {
    /** `postgres://` or `postgresql://`, possibly with several hosts. */
    readonly url: string;
    /** The server itself, for LISTEN, if `url` is that of a pooler without sessions. */
    readonly listenUrl?: string;
    /** Name of this hub in the tables, the same on every machine. */
    readonly stream: string;
  };
  /** @default a logger that writes nothing */
  readonly log?: Logger;
  /** @default the system's clock */
  readonly clock?: Clock;
}

/** An update to publish from within the process. */
export interface LocalUpdate {
  /** The first is the canonical one. */
  readonly topics: readonly [string, ...string[]];
  readonly data?: string;
  readonly private?: boolean;
  readonly id?: string;
  readonly type?: string;
}

/** A hub that is mounted with its `handle`. */
export interface MountedHub {
  /** Responds to requests for the hub's own paths, and calls `next` for every other request. */
  readonly handle: (
    request: IncomingMessage,
    response: ServerResponse,
    next: (error?: unknown) => void,
  ) => void;
  /**
   * Publishes without a token, because its callers are trusted. Resolves to the id.
   *
   * @throws HubgateError `invalid-publication`, `publication-too-large`, `transport-failed`
   */
  publish(update: LocalUpdate): Promise<string>;
  /**
   * Id of the last update, for a `Link` header of your own; `earliest` before the first. Subscription events
   * do not count: they depend on streams, and only the newest are kept.
   */
  readonly lastUpdateId: string;
  /** The same, including subscription events. */
  readonly lastEventId: string;
  /** Ends all streams and closes the history. */
  close(): Promise<void>;
}

/**
 * Opens a hub without a gateway around it.
 *
 * @throws ConfigError that names each wrong option; HubgateError `missing-option`, `invalid-argument`,
 * `transport-failed`
 * @example
 * const hub = await createHub({ issuers: [{ id, publisher: { key }, subscriber: { key } }] });
 * createServer((request, response) => hub.handle(request, response, () => response.end('the app')));
 */
export async function createHub(options: HubOptions): Promise<MountedHub> {
  const config = hubConfig(options);
  const { log = silentLogger, clock = systemClock } = options;
  requireFunctions({ log, clock }, { log: LOG_FUNCTIONS, clock: CLOCK_FUNCTIONS });
  const problems: Problem[] = [];
  const report: Report = (_about, problem) => {
    // The program itself publishes, and need not deliver to anybody.
    if (!/^no-(?:publisher|subscriber)-key$/.test(problem.code)) problems.push(problem);
  };
  checkHubKeys(config, report);
  checkHub(config, defaultSite, report);
  checkTransport(config.transport, report);
  if (hasError(problems)) throw new ConfigError(problems);
  const scope = new Scope();
  const scheduler = new Scheduler();
  const around = {
    site: '',
    storage: resolve('.'),
    hubCores: createHubCores(() => 0, log),
    keySets: createKeySets(),
    signals: new HubSignals(null),
    wheel: new TimerWheel(clock),
    scheduler,
    caches: new ResponseCaches(scheduler),
    clock,
    random: Math.random,
    dryRun: false,
    playgroundSalt: randomUUID(),
    log,
  };
  const hub = await setUpHub(config, around, scope);
  return {
    handle(request, response, next) {
      if (![request?.socket, response?.writeHead, next].every(Boolean)) {
        throw new HubgateError('invalid-argument', 'handle needs a request, a response and next');
      }
      const exchange = mountedExchange(request, response, log);
      const passOn = async (): Promise<void> => next();
      Promise.resolve(hub.handle(exchange, passOn)).catch(next);
    },
    async publish(local) {
      const given = isLocalUpdate(local)
        ? local
        : readGiven(local, localUpdate, 'invalid-publication');
      const fields = {
        topics: given.topics,
        data: given.data ?? undefined,
        private: given.private ?? false,
        id: given.id ?? undefined,
        type: given.type ?? undefined,
        retry: undefined,
      };
      const { update, topics: read } = parsePublication(fields, hub.publicationRules);
      await hub.core.hub.publish(update, read);
      return update.id;
    },
    get lastUpdateId() {
      return hub.core.hub.lastUpdateId;
    },
    get lastEventId() {
      return hub.core.hub.lastEventId;
    },
    close: () => scope.close(),
  };
}

const localUpdate = object({
  topics: list(text('a topic')),
  data: optional(text('text')),
  private: withDefault(flag, false),
  id: optional(text('an id')),
  type: optional(text('the type of an event')),
});

/** Whether an update is what its type says, as nearly all are: reading one by its shape takes longer than publishing it. */
function isLocalUpdate(given: unknown): given is LocalUpdate {
  if (!isObject(given)) return false;
  const { topics, data, private: isPrivate, id, type, ...others } = given;
  return (
    Array.isArray(topics) &&
    [...topics, data ?? '', id ?? '', type ?? ''].every((text) => typeof text === 'string') &&
    typeof (isPrivate ?? false) === 'boolean' &&
    Object.keys(others).length === 0
  );
}

/** Members of the configuration of a hub that a mounted hub does not have. */
const NOT_MOUNTED = ['name', 'transport', 'outbox', 'playgroundInsecure'];

/** The types do not bind a program in JavaScript, so everything is read as the data of a file is. */
function hubConfig(options: HubOptions): HubConfig {
  const {
    issuers,
    legacy,
    log: _log,
    clock: _clock,
    ...rest
  } = given(options ?? undefined, 'issuers');
  const { history, redis, postgres, ...settings } = rest;
  const unknown = NOT_MOUNTED.filter((name) => Object.hasOwn(settings, name));
  if (unknown.length > 0) {
    throw new ConfigError(
      unknown.map((name) => error('unknown-member', `unknown member "${name}"`)),
    );
  }
  const data = {
    ...settings,
    issuers: Array.isArray(issuers) ? issuers.map(issuerData) : given(issuers, 'issuers'),
    legacy: keysData(legacy),
    transport: transportData({ history, redis, postgres }),
  };
  const kind = postgres === undefined ? 'redis' : 'postgres';
  return readGiven(data, hubShape, null, (place) =>
    place.replace(/^transport\b/, kind).replace(/\.uri$/, '.jwksUri'),
  );
}

function transportData({
  history,
  redis,
  postgres,
}: {
  readonly [Name in 'history' | 'redis' | 'postgres']: HubOptions[Name] | undefined;
}): unknown {
  if (postgres !== undefined) {
    if (!isObject(postgres)) return postgres;
    given(postgres.stream, 'postgres.stream');
    given(postgres.url, 'postgres.url');
    return { ...postgres, kind: 'postgres' };
  }
  if (redis !== undefined) {
    if (!isObject(redis)) return redis;
    given(redis.urls, 'redis.urls');
    given(redis.stream, 'redis.stream');
    return { ...redis, kind: 'redis' };
  }
  if (history === undefined) return { kind: 'memory' };
  if (typeof history === 'string') return { kind: 'lmdb', path: resolve(history) };
  throw new ConfigError([error('bad-value', 'history: expected a directory')]);
}

/** A program in JavaScript may leave out what the types ask for. */
function given<T>(value: T | undefined, name: string): T {
  if (value !== undefined) return value;
  throw new HubgateError('missing-option', `createHub needs the option ${name}`);
}

function issuerData(issuer: unknown): unknown {
  if (isObject(issuer)) given(issuer['id'], 'id of each issuer');
  return keysData(issuer);
}

/** An object with the keys of both roles, or something else that is refused later. */
function keysData(roles: unknown): unknown {
  if (!isObject(roles)) return roles;
  const { publisher, subscriber } = roles;
  return { ...roles, publisher: keyData(publisher), subscriber: keyData(subscriber) };
}

function keyData(key: unknown): unknown {
  if (!isObject(key)) return key;
  if (Object.hasOwn(key, 'key')) return { ...key, kind: 'jwt' };
  const { jwksUri, ...rest } = key;
  return { ...rest, uri: given(jwksUri, 'key, or jwksUri, of each role'), kind: 'jwks' };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
