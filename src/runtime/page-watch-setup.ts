import type { SiteConfig } from '../config/config.ts';
import { PageWatch, type WatchedPage } from '../discovery/page-watch.ts';
import { WatchExchange } from '../discovery/watch-exchange.ts';
import { canonicalTarget } from '../http/canonical-target.ts';
import { parseUrl, requireUrl } from '../kernel/parse-url.ts';
import type { Scope } from '../kernel/scope.ts';
import { answerErrors, type SiteHandler } from '../site/site.ts';
import { personalFieldsOf, type Watching } from './discovery-setup.ts';
import { siteLabel } from './gateway-measures.ts';
import type { Resources } from './resources.ts';

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
export async function openPageWatch(
  site: SiteConfig,
  { watching, routes, isOfSite }: WatchedSite,
  { pageStates, scheduler, clock, random, log, dryRun }: Resources,
  scope: Scope,
): Promise<PageWatch | null> {
  const { hub, topicOf, rules } = watching;
  if (hub.followers === null || site.discovery === null || dryRun) return null;
  // A reload keeps them, so that it hides no change. If it changes how pages look, they are announced once.
  const lease = await pageStates.acquire(siteLabel(site), () => new Map());
  scope.defer(() => lease.release());
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
      states: lease.value,
      personalFields: personalFieldsOf(site.discovery),
      scheduler,
      clock,
      random,
      log,
    }),
  );
}
