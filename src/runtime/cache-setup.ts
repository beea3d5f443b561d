import type { CacheContext } from '../cache/cache-context.ts';
import { purgeName, purgeNameOf } from '../cache/purge-names.ts';
import { createTopicOf } from '../client/page-topics.ts';
import type { DiscoveryConfig, SiteConfig } from '../config/config.ts';
import { DATA_FIELD, PUBLISH_FIELD } from '../discovery/hub-publish.ts';
import { linkedPages } from '../discovery/link.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { requestUrl } from '../http/request-url.ts';
import { parseUrl, requireUrl } from '../kernel/parse-url.ts';
import type { Scope } from '../kernel/scope.ts';
import { personalFieldsOf } from './discovery-setup.ts';
import { cachePlaces } from './cache-places.ts';
import type { HubCore } from './hub-core.ts';
import { CACHES } from './peer-workers.ts';
import type { Resources } from './resources.ts';

/** The field with which an app passes a token, if discovery sets no other. */
const TOKEN_FIELD = 'Hub-Access-Token';
/** Maximum number of names of a response in addition to its URL. */
const MAX_OTHER_NAMES = 8;

/**
 * What the caches of a site need.
 *
 * @param cores the hubs of the site, whose histories other machines share
 */
export function cacheContext(
  site: SiteConfig,
  cores: readonly Pick<HubCore, 'changedElsewhere'>[],
  isHubRequest: (exchange: Exchange) => boolean,
  { caches, signals }: Resources,
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
      const lease = caches.acquire([...digests, before].join(' '), maxBytes);
      scope.defer(() => lease.release());
      return lease.value;
    },
    personalFields: fieldsOfOneClient(site.discovery),
    namesOf: namesOf(site.discovery),
    namesOfTags,
    changed(names) {
      caches.purge(names, 'method');
      signals.send({ core: CACHES, kind: 'changed', names });
      for (const core of cores) core.changedElsewhere(names);
    },
    isHubRequest,
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
    const others = [...linkedPages(headers), headers.get('content-location') ?? ''];
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
