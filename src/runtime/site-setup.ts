import type {
  Config,
  LogOptions,
  RequestLogOptions,
  SiteConfig,
  DiscoveryConfig,
} from '../config/config.ts';
import { matchers } from '../matchers/registry.ts';
import { registry } from '../directives/registry.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import { addressSet, forwardedFields } from '../http/forwarded.ts';
import type { Logger } from '../kernel/log.ts';
import type { Scope } from '../kernel/scope.ts';
import { type AccessLog, logAccess, loggerName } from '../site/access-log.ts';
import { usesPlaceholder } from '../site/placeholder-names.ts';
import { identityFields, removeClaimedIdentity } from '../site/identity-placeholders.ts';
import { compileRequestMatcher } from '../site/text-pattern.ts';
import { emptyingPlaceholders, expandPlaceholders } from '../site/placeholders.ts';
import type { HidesFile } from '../site/site-files.ts';
import { measureSite } from '../site/site-measures.ts';
import { type SpanSink, traceSite } from '../site/tracing.ts';
import { answerErrors, compileSite, type SiteHandler, withHooks } from '../site/site.ts';
import {
  setUpDiscovery,
  hubRequestOf,
  liveRefetches,
  personalFieldsOf,
  setUpLivePages,
  type Watching,
} from './discovery-setup.ts';
import { mappedNames } from './check-placeholders.ts';
import { siteLabel, METRICS_TYPE } from './metrics.ts';
import type { ReadyHub, ReadyHubs } from './hub-setup.ts';
import type { Resources } from './resources.ts';
import type { CacheContext } from '../cache/response-caches.ts';
import { purgeName, purgeNameOf } from '../cache/cache-key.ts';
import { createTopicOf } from '../client/page-topics.ts';
import { waitForStored } from '../discovery/announced-hub.ts';
import { DATA_FIELD, PUBLISH_FIELD } from '../discovery/hub-publish.ts';
import { linkedPages } from '../discovery/link.ts';
import { watchCookies } from '../discovery/live-refetches.ts';
import { fieldText, type HeaderList } from '../http/header-list.ts';
import { requestUrl } from '../http/request-path.ts';
import { parseUrl, requireUrl } from '../kernel/parse.ts';
import { cachePlaces } from './cache-places.ts';
import { CACHES } from './peer-workers.ts';
import { PageWatch, type WatchedPage } from '../discovery/page-watch.ts';
import { WatchExchange } from '../discovery/watch-exchange.ts';
import { canonicalTarget } from '../http/canonical-target.ts';

/** A site that is ready for requests. */
export interface ReadySite {
  readonly handle: SiteHandler;
  /** Begins what the gateway does for the site by itself, when its configuration is the active one. */
  begin(): void;
}

/** What is the same for all sites of a configuration. */
export interface AroundSites {
  readonly hubs: ReadyHubs;
  readonly spans: SpanSink | null;
  readonly hidesFile: HidesFile;
}

/** Creates one handler for a site: discovery around its routes, which include the hub. */
export async function setUpSite(
  site: SiteConfig,
  config: Config,
  isOfSite: (url: URL) => boolean,
  { hubs, spans, hidesFile }: AroundSites,
  resources: Resources,
  scope: Scope,
): Promise<ReadySite> {
  const { clock, measures } = resources;
  const own = hubs.get(site) ?? [];
  const refetches = liveRefetches(site, config, hubs, resources);
  const livePages = setUpLivePages(site, config, hubs);
  const routes = compileSite(site, {
    ...resources,
    registry,
    expand: expandPlaceholders,
    expandOrEmpty: emptyingPlaceholders(mappedNames(site)),
    metrics: async () => ({ type: METRICS_TYPE, text: await resources.metrics() }),
    sharedCounts: own[0]?.core.transport.counts ?? null,
    trusted: addressSet(config.options.servers.trustedProxies),
    isForwarded: forwardedFields(config.options.servers.clientIpHeaders),
    hubHandler: (name) => {
      const hub = name === null ? own[0] : own.slice(1).find(({ config }) => config.name === name);
      return hub?.handle ?? passOn;
    },
    sharing: refetches?.sharing ?? null,
    caching: cacheContext(site, own, resources, scope),
    besidePages: (pages) =>
      livePages === null
        ? pages
        : (exchange, next) => livePages.handle(exchange, async () => pages(exchange, next)),
    hidesFile,
    usesUpstreamResponse: usesPlaceholder([site.routes, site.errorRoutes], 'rp.'),
    logCredentials: config.options.servers.logCredentials,
    defer: (close) => scope.defer(close),
  });
  const discovery = await setUpDiscovery(site, config, hubs, resources, scope);
  const { reports, watching } = discovery;
  // What is added first sees the head of a response last, just before it is sent.
  const hooks = [...discovery.hooks];
  const isBesideLive = config.sites.some((one) => (one.discovery?.live ?? null) !== null);
  if (refetches !== null) hooks.unshift(refetches.take);
  else if (isBesideLive) hooks.unshift(watchCookies(clock));
  if (livePages !== null) hooks.push(livePages.hook);
  const claims = removeClaimedIdentity(
    identityFields([...site.routes, ...site.errorRoutes], registry),
  );
  if (claims !== null) hooks.unshift(claims);
  const hooked = withHooks(routes, hooks, clock);
  const handler =
    reports === null
      ? hooked
      : answerErrors((exchange) => reports(exchange, () => hooked(exchange)), clock);
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

/** The field with which an app passes a token, if discovery sets no other. */
const TOKEN_FIELD = 'Hub-Access-Token';
/** Maximum number of names of a response in addition to its URL. */
const MAX_OTHER_NAMES = 8;

/**
 * What the caches of a site need.
 *
 * @param own the hubs of the site, whose histories other machines share
 */
function cacheContext(
  site: SiteConfig,
  own: readonly ReadyHub[],
  { caches, signals, clock }: Resources,
  scope: Scope,
): CacheContext {
  const places = cachePlaces(site);
  const opened = new Map<object, number>();
  return {
    caches,
    openStore(config, maxBytes) {
      // Named routes may put one cache at several places, and upstreams of requests compile it several times.
      const digests = places.flatMap(({ cache, digest }) => (cache === config ? [digest] : []));
      const before = opened.get(config) ?? 0;
      opened.set(config, before + 1);
      return scope.hold(caches.acquire([...digests, before].join(' '), maxBytes));
    },
    personalFields: fieldsOfOneClient(site.discovery),
    namesOf: namesOf(site.discovery),
    namesOfTags,
    changed(names) {
      caches.purge(names, 'method');
      const notified = [
        signals.sendHandled({ core: CACHES, kind: 'changed', names }),
        ...own.map(({ core }) => core.notifyNodes({ kind: 'changed', names })),
      ].filter((one) => one !== null);
      return notified.length === 0 ? undefined : waitForStored(Promise.all(notified), clock);
    },
    isHubRequest: hubRequestOf(own),
  };
}

function fieldsOfOneClient(discovery: DiscoveryConfig | null): readonly string[] {
  const fields = discovery === null ? [TOKEN_FIELD] : personalFieldsOf(discovery);
  return [...fields, PUBLISH_FIELD, DATA_FIELD].map((name) => name.toLowerCase());
}

/** The URL of a page, its topic, and the names that the app gives it. An update may name any of them. */
function namesOf(discovery: DiscoveryConfig | null): CacheContext['namesOf'] {
  const topicOf = createTopicOf(discovery?.aliases ?? [], (url) => requireUrl(url).href);
  return (exchange: Exchange, headers: HeaderList) => {
    const url = requestUrl(exchange);
    if (url === null) return [];
    const names = new Set([
      purgeNameOf(url),
      purgeName(topicOf(url).topic),
      // Topics may be relative to the hub.
      purgeName(url.pathname),
      purgeName(url.pathname + url.search),
    ]);
    const others = [...linkedPages(headers), fieldText(headers.get('content-location') ?? '')];
    for (const other of others.slice(0, MAX_OTHER_NAMES)) {
      const named = other === '' ? null : parseUrl(other, url.href);
      if (named !== null) names.add(purgeNameOf(named));
    }
    return [...names];
  };
}

/** The tags themselves, and those that are paths also as URLs of the site, because publishers use URLs. */
function namesOfTags(exchange: Exchange, tags: readonly string[]): readonly string[] {
  if (tags.length === 0) return tags;
  const asked = requestUrl(exchange);
  return tags.flatMap((tag) => {
    const url = asked !== null && tag.startsWith('/') ? parseUrl(tag, asked.href) : null;
    return url === null ? [purgeName(tag)] : [purgeName(tag), purgeNameOf(url)];
  });
}

/** Longest URL of a watched page, in characters: the same as the longest topic of a change. */
const MAX_URL = 1024;

interface WatchedSite {
  readonly watching: Watching;
  /** The routes of the site, without what discovery does around them for visitors. */
  readonly routes: SiteHandler;
  readonly isOfSite: (url: URL) => boolean;
}

/**
 * Prepares the watch over the pages of a site; null for a hub elsewhere. A request for a page goes through the
 * routes of its site, but not through discovery, which would hand out a token.
 */
async function openPageWatch(
  site: SiteConfig,
  { watching, routes, isOfSite }: WatchedSite,
  { pageStates, scheduler, clock, random, log, dryRun }: Resources,
  scope: Scope,
): Promise<PageWatch | null> {
  const { hub, topicOf, rules } = watching;
  if (hub.followers === null || site.discovery === null || dryRun) return null;
  // A reload keeps them, so that it hides no change. If it changes how pages look, they are announced once.
  const states = scope.hold(await pageStates.acquire(siteLabel(site), () => new Map()));
  const pageOf = (topic: string): WatchedPage | null => {
    if (topic.length > MAX_URL || !/^https?:\/\//i.test(topic)) return null;
    const followed = parseUrl(topic);
    if (followed === null || !isOfSite(followed)) return null;
    if (followed.username !== '' || followed.password !== '' || followed.hash !== '') return null;
    const page = topicOf(followed);
    // A query that no alias has names a page of its own.
    const url = page.mark === '' ? requireUrl(page.topic) : followed;
    const target = canonicalTarget(url.pathname + url.search);
    if (target === null) return null;
    const exchange = new WatchExchange(url, target, log);
    const found = rules.find(({ matches }) => matches(exchange));
    return found === undefined ? null : { key: url.href, url, target, rule: found.rule };
  };
  return scope.use(
    new PageWatch({
      followers: hub.followers,
      pageOf,
      ask: answerErrors(routes, clock),
      states,
      personalFields: personalFieldsOf(site.discovery),
      scheduler,
      clock,
      random,
      log,
    }),
  );
}
