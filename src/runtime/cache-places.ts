// A stored response depends on the cache itself, on what a request passes before it, and on what follows it.
// The routes beside it that can never handle the same request do not count, so they can change freely.

import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { SiteConfig } from '../config/config.ts';
import { dataOf, type HandlerConfig, type RouteConfig } from '../config/routes.ts';
import { siteAddressText } from '../config/sites.ts';
import { registry } from '../directives/registry.ts';

/** A `cache` at one place of a site. */
export interface CachePlace {
  readonly cache: HandlerConfig;
  /** Equal for caches whose stored responses are valid for each other. */
  readonly digest: string;
  /** For people: the site, and the paths before the cache if the site has several. */
  readonly name: string;
}

/** Everything else that a request passes, in the order of the configuration. */
interface Around {
  readonly before: readonly unknown[];
  readonly after: readonly unknown[];
  readonly paths: readonly string[];
}

/** All caches of a site, in the order of the configuration. */
export function cachePlaces(config: SiteConfig): readonly CachePlace[] {
  const { addresses, routes, errorRoutes, discovery, hub, moreHubs } = config;
  // Live pages name the hub.
  const hubs = [hub, ...moreHubs].map((one) => [one?.name, one?.path]);
  const found = [
    ...placesIn(routes, { before: [], after: [], paths: [] }),
    ...placesIn(errorRoutes, { before: routes, after: [], paths: ['handle_errors'] }),
  ];
  const site = addresses.map(siteAddressText).join(', ');
  return found.map(({ cache, before, after, paths }) => ({
    cache,
    digest: digestOf([addresses, discovery, hubs, cache, before, after]),
    name: [site, ...(found.length > 1 ? paths : [])].join(' '),
  }));
}

function placesIn(
  routes: readonly RouteConfig[],
  { before, after, paths }: Around,
): (Around & { readonly cache: HandlerConfig })[] {
  return routes.flatMap((route, index) => {
    const { matcher, handler } = route;
    const data = dataOf(handler, registry);
    const isPassed = (other: RouteConfig): boolean => !excludes(route, other);
    const around = {
      before: [...before, ...routes.slice(0, index).filter(isPassed), matcher],
      after: [...routes.slice(index + 1).filter(isPassed), ...after],
      paths: [...paths, ...pathsOf(matcher)],
    };
    if (handler.kind === 'cache') return [{ ...around, cache: handler }];
    const whole = { ...around, before: [...around.before, handler] };
    return [
      ...placesIn(data.nested?.(handler) ?? [], around),
      ...placesIn(data.answering?.(handler) ?? [], whole),
    ];
  });
}

/** Whether a request that one route handles never reaches the other one. */
function excludes(one: RouteConfig, other: RouteConfig): boolean {
  if (one === other || one.handler.kind !== other.handler.kind) return false;
  const [group, second] = [one, other].map(({ handler }) => {
    return dataOf(handler, registry).group?.(handler) ?? null;
  });
  // Neighbours with the same matcher count as one.
  return group !== null && group === second && !isDeepStrictEqual(one.matcher, other.matcher);
}

function pathsOf(matcher: RouteConfig['matcher']): readonly string[] {
  return (matcher ?? []).flatMap((condition) => (condition.kind === 'path' ? condition.paths : []));
}

/** Groups are numbered anew, because a route elsewhere may have shifted their numbers. */
function digestOf(parts: readonly unknown[]): string {
  const groups = new Map<number, number>();
  const text = JSON.stringify(parts, (key, value: unknown) => {
    if (key !== 'group' || typeof value !== 'number') return value;
    const number = groups.get(value) ?? groups.size;
    groups.set(value, number);
    return number;
  });
  return createHash('sha256').update(text).digest('base64url');
}
