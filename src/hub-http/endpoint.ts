import type { KeyMaterial } from '../auth/key.ts';
import type { TokenVerifier } from '../auth/verify.ts';
import type { Hub } from '../hub/hub.ts';
import type { MatcherCache } from '../hub/matcher.ts';
import type { Profile } from '../hub/profile.ts';
import type { StreamSettings } from '../hub/subscriber.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import type { ConnectionCounter, ConnectionLimits } from './connection-counter.ts';
import type { BrowserScript } from './browser-script.ts';
import type { LegacyTopics } from './matcher-parameters.ts';

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
  /** The settings that all streams share. */
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
