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
 * All that the hub's HTTP face is compiled from: the core it speaks for, and the site's settings.
 * The functions that answer take from it what they need, once.
 */
export interface HubEndpoint {
  readonly hub: Hub;
  readonly profile: Profile;
  /** Path of the hub, without a trailing slash. */
  readonly path: string;
  /** URL against which topics and patterns are resolved. */
  readonly base: string;
  readonly detailType: string;
  readonly cookieName: string;
  /** Issuers that are authorization servers, in configuration order. */
  readonly authorizationServers: readonly string[];
  readonly verifier: TokenVerifier;
  readonly anonymous: boolean;
  /** Whether `HUB/debug/` is served. */
  readonly debugger: boolean;
  /** Served as `HUB/live.js`; null: not there. */
  readonly liveScript: BrowserScript | null;
  /** Served as `HUB/client.js`; null: not there. */
  readonly clientScript: BrowserScript | null;
  /** Served as `HUB/debug/debugger.js` where `debugger` is on; null: not there. */
  readonly debuggerScript: BrowserScript | null;
  /** null: no playground. */
  readonly playground: Playground | null;
  readonly corsOrigins: readonly string[];
  readonly publishOrigins: readonly string[];
  /** Lower-case `scheme://host[:port]`; empty accepts every host. */
  readonly publicOrigins: readonly string[];
  readonly resourceIdentifier: string | null;
  /** What all streams have in common. */
  readonly stream: StreamSettings;
  readonly writeTimeoutMs: number;
  /** 0 means no limit. */
  readonly maxRequestBodySize: number;
  /** Instructions of all URL Patterns of one subscription. */
  readonly maxPatternSize: number;
  readonly connections: ConnectionCounter;
  readonly connectionLimits: ConnectionLimits;
  readonly matcherCache: MatcherCache;
  /** How `topic=` of 0.x subscribes; null refuses it. */
  readonly legacyTopics: LegacyTopics | null;
  readonly scheduler: Scheduler;
  readonly clock: Clock;
  /** From 0 up to 1; spreads deadlines. */
  readonly random: () => number;
}

/** What the playground signs with: a key of its own. Only ever for demonstrations. */
export interface Playground {
  /** null when no subscriber key is an HMAC secret: then there is not a token to be had. */
  readonly signer: {
    readonly issuer: string;
    readonly key: { readonly algorithm: string; readonly material: KeyMaterial };
    /** Whether publishers are verified with the same key. */
    readonly mayPublish: boolean;
  } | null;
}
