import type { Config, SiteConfig } from '../config/config.ts';
import type { Handler } from '../http/exchange.ts';
import { addressSet } from '../http/forwarded.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scope } from '../kernel/scope.ts';
import { logAccess } from '../site/access-log.ts';
import { expandPlaceholders } from '../site/placeholders.ts';
import { measureSite } from '../site/site-measures.ts';
import { type SpanSink, traceSite } from '../site/tracing.ts';
import { compileSite, type SiteHandler } from '../site/site.ts';
import { discoveryHandlers, livePagesHandler } from './discovery-setup.ts';
import { siteLabel } from './gateway-measures.ts';
import type { ReadyHubs } from './hub-setup.ts';
import type { Resources } from './resources.ts';

/** A site as one handler: discovery around its routes, the hub among them. */
export async function setUpSite(
  site: SiteConfig,
  config: Config,
  hubs: ReadyHubs,
  spans: SpanSink | null,
  resources: Resources,
  scope: Scope,
): Promise<SiteHandler> {
  const { log, clock, random, upstreams, rateLimits, measures } = resources;
  const livePages = livePagesHandler(site, config, hubs);
  const routes = compileSite(site, {
    expand: expandPlaceholders,
    log,
    clock,
    random,
    upstreams,
    rateLimits,
    sharedCounts: hubs.get(site)?.[0]?.core.transport.counts ?? null,
    trusted: addressSet(config.options.servers.trustedProxies),
    hubHandler: (name) => {
      const own = hubs.get(site) ?? [];
      const hub = name === null ? own[0] : own.slice(1).find(({ config }) => config.name === name);
      return hub?.handle ?? passOn;
    },
    besidePages: (pages) =>
      livePages === null
        ? pages
        : (exchange, next) => livePages(exchange, async () => pages(exchange, next)),
    defer: (close) => scope.defer(close),
  });
  const around = await discoveryHandlers(site, config, hubs, resources, scope);
  const handler = around.reduceRight<SiteHandler>(
    (inner, outer) => async (exchange) => outer(exchange, () => inner(exchange)),
    routes,
  );
  const accessLog = openAccessLog(site, config, resources, scope);
  const measured = measureSite(handler, measures.site(site), clock);
  const logged = accessLog === null ? measured : logAccess(measured, accessLog, clock);
  const { enabled } = config.options.trace;
  return enabled ? traceSite(logged, siteLabel(site), spans, clock) : logged;
}

/** A site's own log where it names one, else the gateway's. */
function openAccessLog(
  { accessLog }: SiteConfig,
  { options }: Config,
  { log, openLog }: Resources,
  scope: Scope,
): Logger | null {
  if (accessLog === null) return null;
  const { output, format, roll } = accessLog;
  if (output === null && format === options.log.format) return log;
  const target = output === null ? options.log : { output, roll };
  const opened = openLog({ ...target, level: 'info', format });
  scope.defer(() => opened.close());
  return opened.log;
}

const passOn: Handler = (_exchange, next) => next();
