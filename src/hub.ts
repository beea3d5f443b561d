import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { resolve } from 'node:path';
import { defaultHub, defaultJwks } from './config/defaults.ts';
import {
  type PostgresTransportConfig,
  type RedisTransportConfig,
  type TransportConfig,
  transportKinds,
} from './config/transports.ts';
import type { HubConfig, IssuerConfig, KeySource } from './config/config.ts';
import { ConfigError, type Problem } from './config/problem.ts';
import { parsePublication } from './hub/publication.ts';
import { hubBase } from './hub/topic.ts';
import { type Clock, systemClock } from './kernel/clock.ts';
import { HubgateError } from './kernel/error.ts';
import { type Logger, silentLogger } from './kernel/log.ts';
import { Scope } from './kernel/scope.ts';
import { Secret } from './kernel/secret.ts';
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
 * @throws ConfigError for keys that cannot be used; HubgateError `missing-option`, `transport-failed`
 * @example
 * const hub = await createHub({ issuers: [{ id, publisher: { key }, subscriber: { key } }] });
 * createServer((request, response) => hub.handle(request, response, () => response.end('the app')));
 */
export async function createHub(options: HubOptions): Promise<MountedHub> {
  const { log = silentLogger, clock = systemClock } = given(options, 'issuers');
  const config = hubConfig(options);
  const problems: Problem[] = [];
  checkHubKeys(config, (_about, problem) => problems.push(problem));
  if (problems.some(({ severity }) => severity === 'error')) throw new ConfigError(problems);
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
  const rules = {
    profile: hub.profile,
    hubPath: hub.path,
    base: hubBase(config.resourceIdentifier, hub.path),
  };
  return {
    handle(request, response, next) {
      const exchange = mountedExchange(request, response, log);
      const passOn = async (): Promise<void> => next();
      Promise.resolve(hub.handle(exchange, passOn)).catch(next);
    },
    async publish({ topics, data, private: isPrivate = false, id, type }) {
      const fields = { topics, data, private: isPrivate, id, type, retry: undefined };
      const { update, topics: read } = parsePublication(fields, rules);
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

function hubConfig(options: HubOptions): HubConfig {
  const { issuers, legacy = {}, log: _log, clock: _clock, ...rest } = options;
  const { history, redis, postgres, ...settings } = rest;
  return {
    ...defaultHub,
    ...settings,
    issuers: given(issuers, 'issuers').map(
      ({ id, publisher, subscriber, authorizationServer = false }): IssuerConfig => ({
        id: given(id, 'id of each issuer'),
        authorizationServer,
        publisher: keySource(publisher),
        subscriber: keySource(subscriber),
      }),
    ),
    legacy: { publisher: keySource(legacy.publisher), subscriber: keySource(legacy.subscriber) },
    transport: transportOf({ history, redis, postgres }),
  };
}

function transportOf({
  history,
  redis,
  postgres,
}: {
  readonly [Name in 'history' | 'redis' | 'postgres']: HubOptions[Name] | undefined;
}): TransportConfig {
  if (postgres !== undefined) {
    const { url, listenUrl, ...settings } = postgres;
    return {
      ...transportKinds.postgres.defaults,
      ...settings,
      stream: given(settings.stream, 'postgres.stream'),
      url: new Secret(given(url, 'postgres.url')),
      listenUrl: listenUrl === undefined ? null : new Secret(listenUrl),
    };
  }
  if (redis !== undefined) {
    const urls = given(redis.urls, 'redis.urls').map((url) => new Secret(url));
    const stream = given(redis.stream, 'redis.stream');
    return { ...transportKinds.redis.defaults, ...redis, urls, stream };
  }
  if (history === undefined) return transportKinds.memory.defaults;
  return { ...transportKinds.lmdb.defaults, path: resolve(history) };
}

/** A program in JavaScript may leave out what the types ask for. */
function given<T>(value: T | undefined, name: string): T {
  if (value !== undefined) return value;
  throw new HubgateError('missing-option', `createHub needs the option ${name}`);
}

function keySource(key: HubKey | undefined): KeySource | null {
  if (key === undefined) return null;
  if ('key' in key) {
    return { kind: 'jwt', key: new Secret(key.key), algorithm: key.algorithm ?? null };
  }
  return {
    ...defaultJwks,
    uri: given(key.jwksUri, 'key, or jwksUri, of each role'),
    algorithms: key.algorithms ?? [],
  };
}
