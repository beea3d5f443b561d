// A stored response depends on the cache itself, on what a request passes before it, and on what follows it.
// The routes beside it that can never handle the same request do not count, so they can change freely.

import { hash } from 'node:crypto';
import type { SiteConfig } from '../config/config.ts';
import {
  dataOf,
  everyRoute,
  type HandlerConfig,
  type MatchCondition,
  type RequestMatcher,
  type RouteConfig,
} from '../config/routes.ts';
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
  const whole = routes.map((route) => everyRoute([route], registry));
  // Each route is compared with all others only where that matters.
  const isAround = whole.map((inside) => inside.some(({ handler }) => handler.kind === 'cache'));
  if (!isAround.includes(true)) return [];
  const matchers = routes.map(({ matcher }) => JSON.stringify(matcher));
  /** For each route: how many of those before it change the target of requests. */
  const retargets = [0];
  for (const inside of whole) {
    retargets.push((retargets.at(-1) ?? 0) + (inside.some(isRetargeting) ? 1 : 0));
  }
  return routes.flatMap((route, index) => {
    if (isAround[index] !== true) return [];
    const { matcher, handler } = route;
    const isPassed = (at: number): boolean => {
      const other = routes[at];
      if (other === undefined || at === index) return true;
      // Neighbours with the same matcher count as one.
      if (isAlternative(handler, other.handler) && matchers[at] !== matchers[index]) return false;
      const isSameTarget = retargets[index] === retargets[at];
      return !isSameTarget || !areDisjoint(matcher, other.matcher);
    };
    const around = {
      before: [...before, ...routes.slice(0, index).filter((_, at) => isPassed(at)), matcher],
      after: [...routes.slice(index + 1).filter((_, at) => isPassed(index + 1 + at)), ...after],
      paths: [...paths, ...pathsOf(matcher)],
    };
    if (handler.kind === 'cache') return [{ ...around, cache: handler }];
    const data = dataOf(handler, registry);
    const withHandler = { ...around, before: [...around.before, handler] };
    return [
      ...placesIn(data.nested?.(handler) ?? [], around),
      ...placesIn(data.answering?.(handler) ?? [], withHandler),
    ];
  });
}

/** Whether only the first of two handlers whose routes match handles a request. */
function isAlternative(one: HandlerConfig, other: HandlerConfig): boolean {
  if (one.kind !== other.kind) return false;
  const { group } = dataOf(one, registry);
  const own = group?.(one) ?? null;
  return own !== null && own === group?.(other);
}

function isRetargeting({ handler }: RouteConfig): boolean {
  return dataOf(handler, registry).retargets?.(handler) === true;
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
  return hash('sha256', text, 'base64url');
}

// What two matchers say about each other, without a request. It is safe to answer "may both match": the answer `true`
// needs a proof, which exists for paths and hosts that are plain texts.

/** Conditions that only look: testing them changes nothing that later handlers could see. */
const ONLY_LOOKING: ReadonlySet<MatchCondition['kind']> = new Set([
  'path',
  'host',
  'method',
  'header',
  'query',
  'protocol',
] as const);

/** A path without escapes, placeholders and repeated slashes, or everything that begins with it. */
const PLAIN_PATH = /^((?:\/[\w.~-]+)*\/?)(\*?)$/;
/** One host. Its labels decide, so a host with a dot at its end does not count. */
const PLAIN_HOST = /^[\w-]+(?:\.[\w-]+)*$/;

/**
 * Whether it is certain that no request in one state matches both, and that testing `other` has no effect on
 * a request that matches `one`. null matches every request.
 */
function areDisjoint(one: RequestMatcher | null, other: RequestMatcher | null): boolean {
  if (one === null || other === null) return false;
  if (!other.every(({ kind }) => ONLY_LOOKING.has(kind))) return false;
  return one.some((first) => other.some((second) => excludeEachOther(first, second)));
}

function excludeEachOther(one: MatchCondition, other: MatchCondition): boolean {
  if (one.kind === 'path' && other.kind === 'path') {
    return everyPair(one.paths, other.paths, arePathsApart);
  }
  return (
    one.kind === 'host' && other.kind === 'host' && everyPair(one.hosts, other.hosts, areHostsApart)
  );
}

function everyPair(
  ones: readonly string[],
  others: readonly string[],
  areApart: (one: string, other: string) => boolean,
): boolean {
  return ones.every((one) => others.every((other) => areApart(one, other)));
}

/** Paths are compared without case. */
function arePathsApart(one: string, other: string): boolean {
  const [, start, star] = PLAIN_PATH.exec(one.toLowerCase()) ?? [];
  const [, otherStart, otherStar] = PLAIN_PATH.exec(other.toLowerCase()) ?? [];
  if (start === undefined || otherStart === undefined) return false;
  if (star === '*' && otherStart.startsWith(start)) return false;
  if (otherStar === '*' && start.startsWith(otherStart)) return false;
  return start !== otherStart;
}

function areHostsApart(one: string, other: string): boolean {
  return (
    PLAIN_HOST.test(one) && PLAIN_HOST.test(other) && one.toLowerCase() !== other.toLowerCase()
  );
}
