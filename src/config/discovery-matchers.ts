import type { DiscoveryConfig, RequestMatcher } from './config.ts';

/** All conditions of requests that a site's discovery asks. */
export function matchersOf({ matcher, changes, live }: DiscoveryConfig): RequestMatcher[] {
  const ofChanges = changes.flatMap((one) => [
    one.matcher,
    ...one.alsoFor.map((also) => also.matcher),
  ]);
  const all = [matcher, live?.matcher ?? null, ...ofChanges];
  return all.filter((one) => one !== null);
}
