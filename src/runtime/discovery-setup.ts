import type { Config, DiscoveryConfig, SiteConfig } from '../config/config.ts';
import {
  type AnnouncedHub,
  type AnnouncedUpdate,
  createAnnounce,
} from '../discovery/announced-hub.ts';
import { createChanges } from '../discovery/changes.ts';
import { createDiscovery } from '../discovery/discovery.ts';
import { grantTemplates, responseFieldsIn, type TokenSource } from '../discovery/token-source.ts';
import { DATA_FIELD, PUBLISH_FIELD } from '../discovery/hub-publish.ts';
import { createPublishedAnswers } from '../discovery/published-answers.ts';
import {
  createLiveReports,
  type LivePages,
  type LivePagesOptions,
  REPORT_WINDOW_MS,
  reportPath,
  createLivePages,
} from '../discovery/live-pages.ts';
import { removerOf } from '../discovery/page-state.ts';
import type { WatchRule } from '../discovery/page-watch.ts';
import { createTopicOf, type TopicOf } from '../client/page-topics.ts';
import { createLiveRefetches } from '../discovery/live-refetches.ts';
import { TokenCache, tokenCacheName, createTokenMint } from '../discovery/token-mint.ts';
import { createTokenExchange } from '../discovery/token-exchange.ts';
import type { Exchange, Handler, RequestHook } from '../http/exchange.ts';
import { isWithin } from '../http/request-path.ts';
import { takeSessionMark } from '../http/session-mark.ts';
import { standFor } from '../hub/election.ts';
import { profiles } from '../hub/profile.ts';
import { parsePublication, type PublicationRules } from '../hub/publication.ts';
import { originList } from '../hub-http/cors.ts';
import { noteCredentials } from '../hub-http/access.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Scope } from '../kernel/scope.ts';
import { matchers } from '../matchers/registry.ts';
import { compileRequestMatcher } from '../site/text-pattern.ts';
import { expandIdentity } from '../site/identity-placeholders.ts';
import { expandPlaceholders } from '../site/placeholders.ts';
import { SubExchange } from '../site/sub-exchange.ts';
import { placeOfHub } from './history-names.ts';
import { requireUrl } from '../kernel/parse.ts';
import { noAnnouncements } from './hub-core.ts';
import { readyHub, type ReadyHub, type ReadyHubs } from './hub-setup.ts';
import type { Resources } from './resources.ts';

/** An announced hub with the requirements for its tokens. */
interface Announcement {
  readonly hub: AnnouncedHub;
  readonly detailType: string;
  readonly audience: (exchange: Exchange) => string;
}

/** What discovery adds around the routes of a site. */
export interface DiscoveryParts {
  /** In the order in which they run. */
  readonly hooks: readonly RequestHook[];
  /** Responds to the reports of live pages; null if there are none. */
  readonly reports: Handler | null;
  /** The pages that are watched; null if none are. */
  readonly watching: Watching | null;
}

/** Which pages of a site are watched, and how. */
export interface Watching {
  readonly hub: AnnouncedHub;
  readonly topicOf: TopicOf;
  /** The first one that matches a request applies to its page. */
  readonly rules: readonly {
    readonly matches: (exchange: Exchange) => boolean;
    readonly rule: WatchRule;
  }[];
}

const NOTHING_ADDED: DiscoveryParts = { hooks: [], reports: null, watching: null };

export async function setUpDiscovery(
  site: SiteConfig,
  config: Config,
  hubs: ReadyHubs,
  resources: Resources,
  scope: Scope,
): Promise<DiscoveryParts> {
  const { clock } = resources;
  const { discovery } = site;
  const own = hubs.get(site) ?? [];
  const announcement = discovery === null ? null : announcementFor(site, config, hubs);
  if (own.length === 0 && discovery === null) return NOTHING_ADDED;

  const cookieNames = new Set(own.map(({ cookieName }) => cookieName));
  if (announcement !== null) cookieNames.add(announcement.hub.cookieName);
  const fromHeader = discovery?.cookie.fromHeader ?? 'Hub-Access-Token';
  const hooks = [keepInside(fromHeader, [...cookieNames])];
  if (discovery === null || announcement === null) return { ...NOTHING_ADDED, hooks };

  const { paths } = discovery.expire;
  const hubRequest = hubRequestOf(own);
  const matches = compileRequestMatcher(discovery.matcher, matchers);
  const { hub } = announcement;
  const concerns = (exchange: Exchange): boolean => !hubRequest(exchange) && matches(exchange);
  let reports: Handler | null = null;
  if (discovery.live?.report === true) {
    const lease = resources.rateLimits.acquire('reports of live pages', REPORT_WINDOW_MS);
    reports = createLiveReports({ hub, counts: scope.hold(lease) });
  }
  const speaking = publishingHooks(discovery, hub, clock, concerns, scope);
  hooks.push(
    ...speaking.hooks,
    createDiscovery({
      config: discovery,
      hub,
      matches,
      logsOut:
        paths.length === 0
          ? () => false
          : compileRequestMatcher([{ kind: 'path', paths }], matchers),
      isHubRequest: hubRequest,
      tokens: await tokenSource(discovery, announcement, resources, scope),
      clock,
    }),
  );
  return { hooks, reports, watching: speaking.watching };
}

export function hubRequestOf(own: readonly ReadyHub[]): (exchange: Exchange) => boolean {
  const below = own.map(({ path }) => isWithin(path));
  return (exchange) => {
    for (const isIt of below) if (isIt(exchange)) return true;
    return false;
  };
}

/** Coordinates the fetches of live pages after updates; null if no page is live. */
export function liveRefetches(
  site: SiteConfig,
  config: Config,
  hubs: ReadyHubs,
  { clock, random }: Resources,
): ReturnType<typeof createLiveRefetches> | null {
  const { discovery } = site;
  const announcement = announcementFor(site, config, hubs);
  if (announcement === null || discovery === null || discovery.live === null) return null;
  const hubRequest = hubRequestOf(hubs.get(site) ?? []);
  const matches = compileRequestMatcher(discovery.matcher, matchers);
  const isLive = compileRequestMatcher(discovery.live.matcher, matchers);
  const concerns = (exchange: Exchange): boolean =>
    !hubRequest(exchange) && matches(exchange) && isLive(exchange);
  const { windowMs } = discovery.live;
  const { hub } = announcement;
  const personalFields = personalFieldsOf(discovery);
  const topicOf = createTopicOf(discovery.aliases, normalized);
  return createLiveRefetches({ hub, concerns, windowMs, topicOf, clock, random, personalFields });
}

/** The fields in which the app passes a user's token, or identifies the user for one. */
export function personalFieldsOf({
  cookie,
  tokenSource: source,
}: DiscoveryConfig): readonly string[] {
  if (source === null) return [cookie.fromHeader];
  const subject = source.kind === 'exchange' ? source.subjectToken : null;
  const templates = [...grantTemplates(source), ...(subject === null ? [] : [subject])];
  return [cookie.fromHeader, ...responseFieldsIn(templates)];
}

/** Publishes updates that result from the app's responses. */
function publishingHooks(
  { publish, changes, aliases }: DiscoveryConfig,
  hub: AnnouncedHub,
  clock: Resources['clock'],
  concerns: (exchange: Exchange) => boolean,
  scope: Scope,
): Pick<DiscoveryParts, 'hooks' | 'watching'> {
  if (hub.publish === null) return NOTHING_ADDED;
  const announce = createAnnounce(hub, clock);
  const hooks: RequestHook[] = [];
  const rules: Watching['rules'][number][] = [];
  if (publish) hooks.push(createPublishedAnswers({ hub, concerns, announce, clock }));
  const topicOf = createTopicOf(aliases, normalized);
  /** Earlier entries take precedence for their requests. */
  const earlier: ((exchange: Exchange) => boolean)[] = [];
  for (const config of changes) {
    const matches = compileRequestMatcher(config.matcher, matchers);
    const isFor = (exchange: Exchange): boolean =>
      config.methods.includes(exchange.method) && matches(exchange);
    const before = [...earlier];
    earlier.push(isFor);
    const options = {
      config,
      hub,
      concerns: (exchange: Exchange): boolean =>
        isFor(exchange) && concerns(exchange) && !before.some((one) => one(exchange)),
      alsoFor: config.alsoFor.map(({ matcher, topics }) => ({
        matches: compileRequestMatcher(matcher, matchers),
        topics,
      })),
      topicOf,
      announce,
      expand: expandPlaceholders,
      clock,
    };
    const made = scope.use(createChanges(options));
    hooks.push(made.hook);
    const { watchMs: intervalMs } = config;
    if (intervalMs === null) continue;
    const ignore = config.ignore.map(removerOf);
    rules.push({
      matches: (exchange) => matches(exchange) && concerns(exchange),
      rule: { intervalMs, ignore, announce: made.watched },
    });
  }
  return { hooks, watching: rules.length === 0 ? null : { hub, topicOf, rules } };
}

/**
 * Keeps data between app and gateway from leaving: the token's header, and the mark of the session. What the client
 * itself has sent is noted before handlers change it.
 */
function keepInside(fromHeader: string, cookieNames: readonly string[]): RequestHook {
  const fields = [fromHeader, PUBLISH_FIELD, DATA_FIELD];
  return (exchange) => {
    exchange.withhold(fields);
    noteCredentials(exchange);
    for (const name of cookieNames) takeSessionMark(exchange, name);
  };
}

/**
 * Makes the app's pages live; null if they are not.
 *
 * @throws HubgateError `no-live-script`
 */
export function setUpLivePages(
  site: SiteConfig,
  config: Config,
  hubs: ReadyHubs,
): LivePages | null {
  const { discovery } = site;
  if (discovery === null || discovery.live === null) return null;
  const { live } = discovery;
  const place = placeOfHub(site, config);
  const hub =
    place === null || place.kind === 'elsewhere'
      ? hubs.get(site)?.[0]
      : readyHub(hubs, place.kind === 'site' ? place.site : site, place.hub);
  const announcement = announcementFor(site, config, hubs);
  if (hub === undefined || announcement === null) return null;
  if (hub.liveScript === null) {
    const message = 'The script of live pages has not been built: run npm run build';
    throw new HubgateError('no-live-script', message);
  }
  const matches = compileRequestMatcher(discovery.matcher, matchers);
  const isLive = compileRequestMatcher(live.matcher, matchers);
  const concerns: LivePagesOptions['concerns'] = (exchange, dependsOn) => {
    if (discovery.matcher === null && live.matcher === null) return true;
    const { method, target, hasBody } = exchange;
    const asked = new SubExchange(exchange, { method, target, hasBody }, dependsOn);
    return matches(asked) && isLive(asked);
  };
  const { version } = hub.liveScript;
  const settings = liveSettings(discovery, announcement.hub);
  return createLivePages({ hub: announcement.hub, concerns, version, settings });
}

/** The operator's settings for live pages, as attributes of their script. */
function liveSettings(
  { aliases, live }: DiscoveryConfig,
  hub: AnnouncedHub,
): (readonly [string, string])[] {
  const { report = false, notice = null, noticeStyle = null } = live ?? {};
  const settings = {
    aliases: aliases.length === 0 ? null : JSON.stringify(aliases),
    report: report ? reportPath(hub) : null,
    notice,
    'notice-style': noticeStyle,
  };
  return Object.entries(settings).flatMap(([name, value]) =>
    value === null ? [] : [[`data-${name}`, value] as const],
  );
}

async function tokenSource(
  { tokenSource: source }: DiscoveryConfig,
  { audience, detailType }: Announcement,
  { clock, tokenCaches }: Resources,
  scope: Scope,
): Promise<TokenSource | null> {
  if (source === null) return null;
  const name = tokenCacheName(source, detailType);
  const cache = scope.hold(await tokenCaches.acquire(name, () => new TokenCache(clock)));
  const purpose = { audience, detailType, expandIdentity, clock, cache };
  return source.kind === 'mint'
    ? createTokenMint(source, purpose)
    : createTokenExchange(source, { ...purpose, expand: expandPlaceholders, fetch });
}

function announcementFor(site: SiteConfig, config: Config, hubs: ReadyHubs): Announcement | null {
  const place = placeOfHub(site, config);
  if (place === null) return null;
  if (place.kind === 'elsewhere') return elsewhere(place.url, place.host);
  const hub = readyHub(hubs, place.kind === 'own' ? site : place.site, place.hub);
  if (hub === undefined) return null;
  return place.kind === 'own' ? onThisSite(hub) : onAnotherSite(hub, place.url, place.host);
}

function onThisSite(hub: ReadyHub): Announcement {
  const { path } = hub;
  return {
    ...announced(hub, path, (pageHost) => pageHost),
    // The identity of the hub for this client's request, unless one is configured.
    audience: ({ scheme, originalHost }) =>
      hub.config.resourceIdentifier ?? `${scheme}://${originalHost}${path}`,
  };
}

function onAnotherSite(hub: ReadyHub, url: string, host: string): Announcement {
  return {
    ...announced(hub, url, () => host),
    audience: () => hub.config.resourceIdentifier ?? url,
  };
}

function announced(
  { config, path, profile, publicationRules, cookieName, core }: ReadyHub,
  target: string,
  hostFor: AnnouncedHub['hostFor'],
): Omit<Announcement, 'audience'> {
  const allowed = originList(config.corsOrigins);
  const hub: AnnouncedHub = {
    target,
    path,
    relation: profile.relation,
    cookieName,
    lastEventId: () => core.hub.lastUpdateId,
    hostFor,
    allowsOrigin:
      config.corsOrigins.length === 0
        ? null
        : (origin) => allowed.find(origin.toLowerCase()) !== undefined,
    publish: (update) => publishTo(core.hub, update, publicationRules),
    interest: (topic) => core.hub.followed.countExact(topic),
    announcements: core.announcements,
    unstored: core.unstored,
    followers: {
      topics: () => core.hub.followed.exactTopics(),
      observe: (observer) => core.hub.followed.observe(observer),
      standFor: (work) => standFor(work, core.transport.presence),
      counts: core.watching,
    },
    revoke: (tokenId) => void core.revoke(tokenId),
    signOut: (session) => core.signOut(session),
  };
  return { hub, detailType: config.detailType ?? profile.detailType };
}

/** With the rules of every publication, but without a token and a connection. */
async function publishTo(
  hub: ReadyHub['core']['hub'],
  { topics, data, private: isPrivate, id, type }: AnnouncedUpdate,
  rules: PublicationRules,
): Promise<void> {
  const fields = { topics, data, private: isPrivate, id, type, retry: undefined };
  const publication = parsePublication(fields, rules);
  await hub.publish(publication.update, publication.topics);
}

/** A hub of which only the URL is known. Its path determines the profile of its names. */
function elsewhere(url: string, host: string): Announcement {
  const { pathname } = requireUrl(url);
  const profile = Object.values(profiles).find(({ path }) => path === pathname) ?? profiles.hub;
  const hub: AnnouncedHub = {
    target: url,
    path: pathname,
    relation: profile.relation,
    cookieName: profile.cookieName,
    lastEventId: () => null,
    hostFor: () => host,
    allowsOrigin: null,
    publish: null,
    interest: () => 0,
    announcements: noAnnouncements(),
    unstored: null,
    followers: null,
    revoke: () => {},
    signOut: () => {},
  };
  return { hub, detailType: profile.detailType, audience: () => url };
}

function normalized(url: string): string {
  return requireUrl(url).href;
}
