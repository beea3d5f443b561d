import type { KeyMaterial } from '../auth/key.ts';
import type { TokenVerifier } from '../auth/verify.ts';
import type { Hub } from '../hub/hub.ts';
import type { MatcherCache } from '../hub/matcher.ts';
import type { Profile } from '../hub/profile.ts';
import type { StreamSettings } from '../hub/subscriber.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import { gzipSync } from 'node:zlib';
import type { Exchange } from '../http/exchange.ts';
import { negotiatedEncoding, selectResponse } from '../http/representation.ts';
import { parseQuery, valuesOf } from './form.ts';
import { methodNotAllowed, notFound } from './refusal.ts';

/**
 * Everything from which the hub's HTTP interface is created: the hub itself, and the settings of the site.
 * The functions that handle requests read what they need from it, once.
 */
export interface HubEndpoint {
  readonly hub: Hub;
  readonly profile: Profile;
  /** Path of the hub, without a trailing slash. */
  readonly path: string;
  /** Base URL for topics and patterns. */
  readonly base: string;
  readonly detailType: string;
  readonly cookieName: string;
  /** Issuers that are authorization servers, in configuration order. */
  readonly authorizationServers: readonly string[];
  readonly verifier: TokenVerifier;
  readonly anonymous: boolean;
  /** Whether `HUB/debug/` is served. */
  readonly debugger: boolean;
  /** Served as `HUB/live.js`; null: not served. */
  readonly liveScript: BrowserScript | null;
  /** Served as `HUB/client.js`; null: not served. */
  readonly clientScript: BrowserScript | null;
  /** Served as `HUB/debug/debugger.js` if `debugger` is true; null: not served. */
  readonly debuggerScript: BrowserScript | null;
  /** null: no playground. */
  readonly playground: Playground | null;
  readonly corsOrigins: readonly string[];
  readonly publishOrigins: readonly string[];
  /** Lower-case `scheme://host[:port]`; empty accepts every host. */
  readonly publicOrigins: readonly string[];
  readonly resourceIdentifier: string | null;
  readonly stream: StreamSettings;
  readonly writeTimeoutMs: number;
  /** 0 means no limit. */
  readonly maxRequestBodySize: number;
  /** Most instructions of all URL Patterns of one subscription. */
  readonly maxPatternSize: number;
  readonly connections: ConnectionCounter;
  readonly connectionLimits: ConnectionLimits;
  readonly matcherCache: MatcherCache;
  /** How `topic=` of 0.x is handled; null refuses it. */
  readonly legacyTopics: LegacyTopics | null;
  readonly scheduler: Scheduler;
  readonly clock: Clock;
  /** Returns a number from 0 up to 1, for spreading deadlines. */
  readonly random: () => number;
}

/** The allowed values of `topic=`. */
export interface LegacyTopics {
  /** Whether a URI Template stands for its expansions. */
  readonly templates: boolean;
}

/** The playground's own key and signer; only for demonstrations. */
export interface Playground {
  /** null if no subscriber key is an HMAC secret: then no token can be issued. */
  readonly signer: {
    readonly issuer: string;
    readonly key: { readonly algorithm: string; readonly material: KeyMaterial };
    /** Whether publishers are verified with the same key. */
    readonly mayPublish: boolean;
  } | null;
}

export interface BrowserScript {
  readonly bytes: Buffer;
  /** Changes whenever the bytes change. */
  readonly version: string;
}

/**
 * `GET HUB/live.js?v=VERSION`, `GET HUB/client.js`: may be cached forever if the version is the current one.
 * It contains no secret, and a module from another origin is read with CORS, so every page may read it.
 */
export function createScriptAnswer(script: BrowserScript | null): (exchange: Exchange) => void {
  if (script === null) return absent;
  const { bytes, version } = script;
  const compressed = gzipSync(bytes, { level: 9 });
  return (exchange) => {
    if (exchange.method !== 'GET' && exchange.method !== 'HEAD')
      throw methodNotAllowed('GET, HEAD');
    const isCurrent = valuesOf(parseQuery(exchange.target) ?? [], 'v')[0] === version;
    const accepted = exchange.headers.combined('accept-encoding') ?? '';
    const isZipped = negotiatedEncoding(accepted, ['gzip', 'x-gzip']) !== null;
    const content = isZipped ? compressed : bytes;
    const fields = {
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': isCurrent ? 'public, max-age=31536000, immutable' : 'no-cache',
      vary: 'Accept-Encoding',
      'access-control-allow-origin': '*',
    };
    const { head } = selectResponse(exchange, {
      size: content.length,
      etag: `"${version}${isZipped ? '-gzip' : ''}"`,
      modifiedMs: null,
      fields: { ...fields, ...(isZipped ? { 'content-encoding': 'gzip' } : {}) },
      takesRanges: false,
    });
    exchange.begin({ ...head, source: 'gateway' }).end(head.status === 200 ? content : undefined);
  };
}

/** Handles requests for what a hub does not serve. */
export const absent = (): never => {
  throw notFound();
};

/** 0 means no limit. */
export interface ConnectionLimits {
  readonly max: number;
  readonly maxPerClient: number;
}

/** Counts the open streams of a hub, in total and by client. The counts outlive a reload. */
export class ConnectionCounter {
  readonly #byClient = new Map<string, number>();
  #total = 0;

  /** Takes a place for a client; null if there is none left. */
  enter(client: string, { max, maxPerClient }: ConnectionLimits): ConnectionPlace | null {
    const own = this.#byClient.get(client) ?? 0;
    if (max > 0 && this.#total >= max) return null;
    if (maxPerClient > 0 && own >= maxPerClient) return null;
    this.#total += 1;
    this.#byClient.set(client, own + 1);
    return new ConnectionPlace(this, client);
  }

  /** Only for {@link ConnectionPlace}. */
  left(client: string): void {
    this.#total -= 1;
    const remaining = (this.#byClient.get(client) ?? 1) - 1;
    if (remaining === 0) this.#byClient.delete(client);
    else this.#byClient.set(client, remaining);
  }
}

/** A place that a stream occupies. */
export class ConnectionPlace {
  readonly #client: string;
  #counter: ConnectionCounter | null;

  constructor(counter: ConnectionCounter, client: string) {
    this.#counter = counter;
    this.#client = client;
  }

  /** Releases the place; another call does nothing. */
  leave(): void {
    this.#counter?.left(this.#client);
    this.#counter = null;
  }
}
