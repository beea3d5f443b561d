import type { DiscoveryConfig } from './config.ts';
import type { RequestMatcher } from './routes.ts';

/** All conditions of requests that a site's discovery asks. */
export function matchersOf({ matcher, changes, live }: DiscoveryConfig): RequestMatcher[] {
  const also = changes?.alsoFor.map((one) => one.matcher) ?? [];
  const all = [matcher, changes?.matcher ?? null, live?.matcher ?? null, ...also];
  return all.filter((one) => one !== null);
}
