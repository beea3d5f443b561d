import type { CacheContext } from '../../src/cache/response-caches.ts';
import { purgeNameOf } from '../../src/cache/cache-key.ts';
import { ResponseCaches } from '../../src/cache/response-caches.ts';
import { requestUrl } from '../../src/http/request-path.ts';
import type { Scheduler } from '../../src/kernel/scheduler.ts';

/** What caches need, for a site without a hub. */
export function standaloneCaching(scheduler: Scheduler): CacheContext {
  const caches = new ResponseCaches(scheduler);
  return {
    caches,
    openStore: (_cache, maxBytes) => caches.acquire(String(Math.random()), maxBytes).value,
    personalFields: ['hub-access-token', 'hub-publish'],
    namesOf: (exchange) => {
      const url = requestUrl(exchange);
      return url === null ? [] : [purgeNameOf(url)];
    },
    namesOfTags: (_exchange, tags) => tags,
    changed: (names) => void caches.purge(names, 'method'),
    isHubRequest: () => false,
  };
}
