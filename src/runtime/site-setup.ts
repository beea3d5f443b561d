import type { Config, LogOptions, RequestLogOptions, SiteConfig } from '../config/config.ts';
import { matchers } from '../matchers/registry.ts';
import { registry } from '../directives/registry.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import { addressSet } from '../http/forwarded.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scope } from '../kernel/scope.ts';
import { type AccessLog, logAccess, loggerName } from '../site/access-log.ts';
import { identityFields, removeClaimedIdentity } from '../site/identity-placeholders.ts';
import { compileRequestMatcher } from '../site/matchers.ts';
import { expandPlaceholders } from '../site/placeholders.ts';
import { hidingFiles } from '../site/site-files.ts';
import { measureSite } from '../site/site-measures.ts';
import { type SpanSink, traceSite } from '../site/tracing.ts';
import { answerErrors, compileSite, type SiteHandler } from '../site/site.ts';
import { cacheContext } from './cache-setup.ts';
import {
  discoveryHandlers,
  hubRequestOf,
  livePagesHandler,
  liveRefetches,
} from './discovery-setup.ts';
import { siteLabel } from './gateway-measures.ts';
import type { ReadyHubs } from './hub-setup.ts';
import { openPageWatch } from './page-watch-setup.ts';
import { METRICS_TYPE } from './metrics.ts';
import type { Resources } from './resources.ts';

/** A site that is ready for requests. */
export interface ReadySite {
  readonly handle: SiteHandler;
  /** Begins what the gateway does for the site by itself, when its configuration is the active one. */
  begin(): void;
}

/** Creates one handler for a site: discovery around its routes, which include the hub. */
export async function setUpSite(
  site: SiteConfig,
  config: Config,
  isOfSite: (url: URL) => boolean,
  hubs: ReadyHubs,
  spans: SpanSink | null,
  resources: Resources,
  scope: Scope,
): Promise<ReadySite> {
  const { log, clock, scheduler, random, upstreams, rateLimits, measures } = resources;
  const refetches = liveRefetches(site, config, hubs, resources);
  const livePages = livePagesHandler(site, config, hubs);
  const routes = compileSite(site, {
    registry,
    expand: expandPlaceholders,
    log,
    clock,
    scheduler,
    random,
    metrics: async () => ({ type: METRICS_TYPE, text: await resources.metrics() }),
    upstreams,
    rateLimits,
    sharedCounts: hubs.get(site)?.[0]?.core.transport.counts ?? null,
    trusted: addressSet(config.options.servers.trustedProxies),
    hubHandler: (name) => {
      const own = hubs.get(site) ?? [];
      const hub = name === null ? own[0] : own.slice(1).find(({ config }) => config.name === name);
      return hub?.handle ?? passOn;
    },
    sharing: refetches?.sharing ?? null,
    bodyMemory: resources.bodyMemory,
    caching: cacheContext(
      site,
      (hubs.get(site) ?? []).map(({ core }) => core),
      hubRequestOf(hubs.get(site) ?? []),
      resources,
      scope,
    ),
    besidePages: (pages) =>
      livePages === null
        ? pages
        : (exchange, next) => livePages(exchange, async () => pages(exchange, next)),
    hidesFile: hidingFiles(config.options.hiddenFiles),
    logCredentials: config.options.servers.logCredentials,
    defer: (close) => scope.defer(close),
  });
  const { handlers, watching } = await discoveryHandlers(site, config, hubs, resources, scope);
  const around = [...handlers];
  if (refetches !== null) around.push(refetches.take);
  const claims = removeClaimedIdentity(
    identityFields([...site.routes, ...site.errorRoutes], registry),
  );
  if (claims !== null) around.unshift(claims);
  const handler = answerErrors(
    around.reduceRight<(exchange: Exchange) => void | Promise<void>>(
      (inner, outer) => (exchange) => outer(exchange, () => inner(exchange)),
      routes,
    ),
    clock,
  );
  const logs = openAccessLogs(site, config, resources, scope);
  const measured = measureSite(handler, measures.site(site), clock);
  const { logCredentials } = config.options.servers;
  const logged =
    logs.length === 0 ? measured : logAccess(measured, { logs, clock, logCredentials });
  const { enabled } = config.options.trace;
  const watch =
    watching === null
      ? null
      : await openPageWatch(site, { watching, routes, isOfSite }, resources, scope);
  return {
    handle: enabled ? traceSite(logged, siteLabel(site), spans, clock) : logged,
    begin: () => watch?.start(),
  };
}

/**
 * Opens the site's own logs, or the gateway's if they name no output; and the logs of the global options that
 * include their lines.
 */
function openAccessLogs(
  { accessLogs }: SiteConfig,
  { options }: Config,
  { log, openLog }: Resources,
  scope: Scope,
): AccessLog[] {
  const open = (settings: LogOptions): Logger => {
    const opened = openLog(settings);
    scope.defer(() => opened.close());
    return opened.log;
  };
  return accessLogs.map(({ name, hosts, onlyNamed, level, output, roll, mode, ...look }) => {
    const isPlain = output === null && look.format === 'auto';
    const { format, encoding } = isPlain ? options.log : look;
    const isOwn = output !== null || !isPlain || level !== 'info';
    const target = output === null ? options.log : { output, roll, mode };
    const also = options.requestLogs.filter((each) => takesLinesOf(each, name));
    const gateways = isOwn || scopesHave(options.log.exclude, name) ? [] : [log];
    return {
      name,
      concerns: compileRequestMatcher(
        hosts.length === 0 ? null : [{ kind: 'host', hosts }],
        matchers,
      ),
      onlyNamed,
      writers: [
        ...(isOwn ? [{ log: open({ ...target, level, format, encoding }), format }] : []),
        ...gateways.map((gatewayLog) => ({ log: gatewayLog, format: options.log.format })),
        ...also.map((other) => ({ log: open(other), format: other.format })),
      ],
    };
  });
}

/** A scope means the log with its name and all logs below it. */
function takesLinesOf({ include, exclude }: RequestLogOptions, name: string | null): boolean {
  return scopesHave(include, name) && !scopesHave(exclude, name);
}

function scopesHave(scopes: readonly string[], name: string | null): boolean {
  const own = loggerName(name);
  return scopes.some((scope) => own === scope || own.startsWith(`${scope}.`));
}

const passOn: Handler = (_exchange, next) => next();
