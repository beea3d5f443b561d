import type { HandlerConfig, HandlerData, RouteConfig } from '../config/routes.ts';
import type { Expand, Handler } from '../http/exchange.ts';
import type { AddressSet } from '../http/forwarded.ts';
import type { RateLimits, SharedCounts } from '../http/rate-limits.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scheduler } from '../kernel/scheduler.ts';
import type { SharedResponseMemory } from '../proxy/shared-response.ts';
import type { RequestSharing } from '../proxy/shared-forwarding.ts';
import type { CacheContext } from '../cache/cache-context.ts';
import type { UpstreamRegistry } from '../proxy/upstreams.ts';
import type { ConditionRegistry } from './matchers.ts';
import type { HidesFile } from './site-files.ts';

/** What a site needs of the registry of directives and matchers. */
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

/** What handlers need of the site and the gateway that they are part of. */
export interface SiteContext {
  readonly registry: HandlerRegistry;
  readonly expand: Expand;
  readonly log: Logger;
  readonly clock: Clock;
  /** One for all of the process; for work that grows with what a client asks for. */
  readonly scheduler: Scheduler;
  /** Numbers from 0 up to but not including 1. */
  readonly random: () => number;
  /** Upstreams outlive the configurations that name them. */
  readonly upstreams: UpstreamRegistry;
  /** What `rate_limit` has counted, which outlives configurations too. */
  readonly rateLimits: RateLimits;
  /** Counts that all nodes of the site's hub share; null where its transport has none. */
  readonly sharedCounts: SharedCounts | null;
  /** Peers whose forwarded fields are believed. */
  readonly trusted: AddressSet;
  /** A hub of the site, by name, or the first; it passes on what is not the hub's. */
  readonly hubHandler: (name: string | null) => Handler;
  /** Which requests to an upstream may share an answer; null where none may. */
  readonly sharing: RequestSharing | null;
  /** Of the answers that are shared, in all of this process. */
  readonly sharedResponseMemory: SharedResponseMemory;
  /** What caches of the site need. */
  readonly caching: CacheContext;
  /** Puts what the gateway adds to the site's pages around a handler that answers with them. */
  readonly besidePages: (handler: Handler) => Handler;
  /** Whether no site may show a file. */
  readonly hidesFile: HidesFile;
  /** Whether logs have header fields with credentials as they are. */
  readonly logCredentials: boolean;
  /** Called once, when the configuration is retired. */
  readonly defer: (close: () => void) => void;
}

export interface HandlerContext extends SiteContext {
  /** Compiles routes inside of a handler. */
  readonly compileRoutes: (routes: readonly RouteConfig[]) => Handler;
}

/**
 * What a directive does: the face of it that runs. Called once per configuration; what can be
 * computed from the configuration alone is computed then.
 */
export type CompileHandler<Config> = (config: Config, context: HandlerContext) => Handler;
