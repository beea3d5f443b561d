import { registry } from '../../../src/directives/registry.ts';
import { RateLimits } from '../../../src/http/rate-limits.ts';
import type { HandlerConfig, RequestMatcher, RouteConfig } from '../../../src/config/routes.ts';
import type { Handler } from '../../../src/http/exchange.ts';
import { forwardedFields } from '../../../src/http/forwarded.ts';
import { type Clock, systemClock } from '../../../src/kernel/clock.ts';
import { Scheduler } from '../../../src/kernel/scheduler.ts';
import { standaloneCaching } from '../../support/caching.ts';
import { silentLogger } from '../../../src/kernel/log.ts';
import { BodyMemory } from '../../../src/coalescing/arriving-body.ts';
import { UpstreamRegistry } from '../../../src/proxy/upstreams.ts';
import { emptyingPlaceholders, expandPlaceholders } from '../../../src/site/placeholders.ts';
import { compileSite } from '../../../src/site/site.ts';
import { type ExchangeServer, serveExchanges } from '../http/exchange-server.ts';

/** A route; without matcher for every request. */
export const on = (handler: HandlerConfig, matcher: RequestMatcher | null = null): RouteConfig => ({
  matcher,
  handler,
});

export const path = (...paths: string[]): RequestMatcher => [{ kind: 'path', paths }];

export const respond = (body: string, status = 200): HandlerConfig => ({
  kind: 'respond',
  status,
  body,
  close: false,
});

export interface SiteServer extends ExchangeServer {
  readonly registry: UpstreamRegistry;
}

/** Serves a site of these routes, with real reverse proxies. */
export async function serveSite(
  routes: readonly RouteConfig[],
  more: { errorRoutes?: readonly RouteConfig[]; hub?: Handler; clock?: Clock } = {},
): Promise<SiteServer> {
  const upstreams = new UpstreamRegistry();
  const closing: (() => void)[] = [];
  const scheduler = new Scheduler();
  const site = compileSite(
    { routes, errorRoutes: more.errorRoutes ?? [] },
    {
      registry,
      expand: expandPlaceholders,
      expandOrEmpty: emptyingPlaceholders(new Set()),
      log: silentLogger,
      clock: more.clock ?? systemClock,
      scheduler,
      metrics: async () => ({ type: 'text/plain', text: '' }),
      caching: standaloneCaching(scheduler),
      sharing: null,
      bodyMemory: new BodyMemory(),
      random: Math.random,
      upstreams,
      trusted: () => false,
      isForwarded: forwardedFields([]),
      hubHandler: () => more.hub ?? ((_, next) => next()),
      besidePages: (handler) => handler,
      rateLimits: new RateLimits(systemClock, null),
      sharedCounts: null,
      hidesFile: () => false,
      usesUpstreamResponse: false,
      logCredentials: false,
      defer: (close) => closing.push(close),
    },
  );
  // As a gateway has it, although no test waits for so long.
  const silence = { limitMs: 60_000, clock: systemClock };
  const server = await serveExchanges((exchange) => site(exchange), silence);
  const close = async (): Promise<void> => {
    for (const each of closing) each();
    upstreams.destroy();
    await server.close();
  };
  return { ...server, registry: upstreams, close, [Symbol.asyncDispose]: close };
}
