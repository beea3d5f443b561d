import type { HandlerConfig, HandlerData, RouteConfig } from '../config/routes.ts';
import type { Expand, Handler } from '../http/exchange.ts';
import type { AddressSet } from '../http/forwarded.ts';
import type { RateLimits, SharedCounts } from '../http/rate-limits.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import type { BodyMemory } from '../coalescing/arriving-body.ts';
import type { RequestSharing } from '../proxy/shared-forwarding.ts';
import type { CacheContext } from '../cache/response-caches.ts';
import type { UpstreamRegistry } from '../proxy/upstreams.ts';
import type { ConditionRegistry } from './text-pattern.ts';
import type { HidesFile } from './site-files.ts';

/** The parts of the registry of directives and matchers that a site needs. */
interface HandlerRegistry {
  readonly directives: Readonly<
    Record<
      string,
      {
        readonly data?: HandlerData<HandlerConfig>;
        compile?(config: HandlerConfig, context: HandlerContext): Handler;
      }
    >
  >;
  readonly matchers: ConditionRegistry;
}

/** The parts of the site and the gateway that handlers need. */
export interface SiteContext {
  readonly registry: HandlerRegistry;
  /** For fields and texts: a placeholder without a value in a request stays as it is written. */
  readonly expand: Expand;
  /** For targets and variables: a placeholder without a value in a request is empty. */
  readonly expandOrEmpty: Expand;
  readonly log: Logger;
  readonly clock: Clock;
  /** The scheduler of the process, for work that grows with a client's input. */
  readonly scheduler: Scheduler;
  /** The metrics of the gateway in the format of Prometheus, with its media type. */
  readonly metrics: () => Promise<{ readonly type: string; readonly text: string }>;
  /** Numbers from 0 up to but not including 1. */
  readonly random: () => number;
  /** Upstreams outlive the configurations that name them. */
  readonly upstreams: UpstreamRegistry;
  /** The counts of `rate_limit`, which also outlive configurations. */
  readonly rateLimits: RateLimits;
  /** Counts that all nodes of the site's hub share; null if its transport has none. */
  readonly sharedCounts: SharedCounts | null;
  /** Peers whose forwarded fields are trusted. */
  readonly trusted: AddressSet;
  /** Whether only such peers may send a field, by its lower-case name. */
  readonly isForwarded: (key: string) => boolean;
  /** A hub of the site by its name, or the first one. It passes on requests that are not for the hub. */
  readonly hubHandler: (name: string | null) => Handler;
  /** Which requests to an upstream may share a response; null if none may. */
  readonly sharing: RequestSharing | null;
  /** Memory of all bodies that several clients may read, in this process. */
  readonly bodyMemory: BodyMemory;
  readonly caching: CacheContext;
  /** Adds what the gateway inserts into the site's pages to a handler that serves them. */
  readonly besidePages: (handler: Handler) => Handler;
  /** Whether a file must not be served by any site. */
  readonly hidesFile: HidesFile;
  /** Whether the site uses placeholders such as `{rp.status_code}`, so that each response of an upstream sets them. */
  readonly usesUpstreamResponse: boolean;
  /** Whether logs contain header fields with credentials in clear. */
  readonly logCredentials: boolean;
  /** Registers a function that is called once, when the configuration is retired. */
  readonly defer: (close: () => void) => void;
}

export interface HandlerContext extends SiteContext {
  readonly compileRoutes: (routes: readonly RouteConfig[]) => Handler;
}

/**
 * The part of a directive that runs. Called once per configuration, so that everything that depends only on
 * the configuration is computed once.
 */
export type CompileHandler<Config> = (config: Config, context: HandlerContext) => Handler;
