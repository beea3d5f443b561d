import { registry } from '../directives/registry.ts';
import { resolve } from 'node:path';
import type { Machine } from '../config/check.ts';
import type { AccessLogConfig, HubConfig, LogOptions, SiteConfig } from '../config/config.ts';
import {
  answersAll,
  dataOf,
  everyCondition,
  everyRoute,
  type HandlerKinds,
  type RouteConfig,
  someAnswersAll,
} from '../config/routes.ts';
import { type Report, warning, error, tryCheck } from '../config/problem.ts';
import { matchersOf } from '../config/sites.ts';
import { compilePattern, compileWildcard } from '../http/linear-regexp.ts';
import { defaultHub } from '../config/shape-hub.ts';
import { hubPath } from './history-names.ts';

/**
 * Warns about routes of a site that do not do what they seem to do. Nothing here prevents a gateway from
 * starting.
 */
export function checkRoutes(
  { routes, errorRoutes }: SiteConfig,
  machine: Machine | undefined,
  report: Report,
): void {
  for (const list of [routes, errorRoutes]) checkReach(list, report);
  for (const { handler } of everyRoute([...routes, ...errorRoutes], registry)) {
    if (handler.kind === 'forward_auth') checkRefusals(handler, report);
  }
  if (machine === undefined) return;
  for (const { handler } of everyRoute([...routes, ...errorRoutes], registry)) {
    if (handler.kind === 'root') checkRoot(handler, machine, report);
    if (handler.kind === 'request_header') checkHost(handler, report);
    if (handler.kind === 'encode') checkCodings(handler, machine, report);
  }
}

/** A route after one that responds to everything never runs. */
function checkReach(routes: readonly RouteConfig[], report: Report): void {
  const index = routes.findIndex(
    ({ matcher, handler }) => matcher === null && answersAll(handler, registry),
  );
  const answering = routes[index]?.handler.kind;
  const behind = routes
    .slice(index + 1)
    .find((route) => dataOf(route.handler, registry).answersAll);
  if (answering !== undefined && behind !== undefined) {
    const { handler } = behind;
    const message = `this ${handler.kind} never runs: the ${answering} before it answers every request`;
    const hint =
      handler.kind === answering && answering === 'reverse_proxy'
        ? 'write both upstreams in one reverse_proxy, or add a matcher to one of them'
        : `add a matcher to the ${answering}`;
    report(handler, warning('unreachable-route', message, hint));
  }
  for (const { handler } of routes)
    checkReach(dataOf(handler, registry).nested?.(handler) ?? [], report);
}

/** A request that the service refuses goes on to the app if the routes for the response send nothing. */
function checkRefusals(auth: HandlerKinds['forward_auth'], report: Report): void {
  const isOpen = auth.proxy.handleResponse.some(
    ({ replaceStatus, routes }) => replaceStatus === null && !someAnswersAll(routes, registry),
  );
  if (!isOpen) return;
  const message =
    'handle_response of this forward_auth may let refused requests through to the app';
  const hint =
    'let it answer every request, for instance with respond 403, unless sessions are optional';
  report(auth, warning('refusal-continues', message, hint));
}

function checkRoot(root: HandlerKinds['root'], machine: Machine, report: Report): void {
  if (root.path.includes('{') || machine.exists(resolve(root.path))) return;
  const message = `the directory ${root.path} does not exist`;
  const hint = 'until it exists, every file below it is a 404';
  report(root, warning('missing-root', message, hint));
}

/** A request always has a host, so removing its field changes nothing. */
function checkHost({ operations }: HandlerKinds['request_header'], report: Report): void {
  for (const operation of operations) {
    if (operation.kind !== 'delete') continue;
    if (!compileWildcard(operation.name.toLowerCase(), 'edges')('host')) continue;
    const message = 'Host cannot be removed from a request';
    const hint =
      'for the address of the upstream, write header_up Host {upstream_hostport} in reverse_proxy';
    report(operation, warning('host-stays', message, hint));
  }
}

function checkCodings(encode: HandlerKinds['encode'], { hasZstd }: Machine, report: Report): void {
  if (!encode.encodings.includes('zstd') || hasZstd) return;
  const message = `Node ${process.versions.node} has no zstd, so it cannot offer this coding`;
  const hint = 'use Node 22.15 or later';
  report(encode, warning('no-zstd', message, hint));
}

/** Checks that every regular expression of a site is valid RE2. */
export function checkPatterns(site: SiteConfig, report: Report): void {
  const routes = everyRoute([...site.routes, ...site.errorRoutes], registry);
  const matchers = [
    ...routes.map(({ matcher }) => matcher),
    ...(site.discovery === null ? [] : matchersOf(site.discovery)),
  ];
  // A named matcher is one object wherever it is used.
  const parts = new Set<object>([
    ...matchers.flatMap((matcher) => everyCondition(matcher, registry)),
    ...routes.flatMap(({ handler }) => dataOf(handler, registry).patterns?.(handler) ?? []),
  ]);
  for (const part of parts) checkPattern(part, report);
}

/** Checks that every regular expression of a log's filters is valid RE2. */
export function checkLogFilters(log: LogOptions | AccessLogConfig, report: Report): void {
  for (const { change } of log.encoding.filters) checkPattern(change, report);
}

function checkPattern(part: object, report: Report): void {
  if (!('pattern' in part) || typeof part.pattern !== 'string') return;
  const { pattern } = part;
  const hint = 'patterns are in RE2 syntax: without lookaround and backreferences';
  tryCheck(() => compilePattern(pattern), part, report, { field: 'pattern' }, hint);
}

/**
 * Checks that the further hubs of a site are distinct, by their names and by the requests that reach them.
 */
export function checkHubsOfSite(site: SiteConfig, report: Report): void {
  const { hub, moreHubs, routes } = site;
  for (const further of moreHubs) {
    if (hub === null) {
      const message = 'moreHubs need a hub, and this site has none';
      report(further, error('hub-without-first', message));
    } else if (further.name === defaultHub.name) {
      const message = 'a further hub of a site needs a name for its history and metrics';
      const hint = 'write, for example, name events in its block';
      report(further, error('unnamed-hub', message, hint), { other: hub });
    }
  }
  for (const { handler } of everyRoute(routes, registry)) {
    if (handler.kind !== 'hub' || handler.name === null) continue;
    if (moreHubs.some(({ name }) => name === handler.name)) continue;
    const message = `this site has no further hub of the name ${handler.name}`;
    report(handler, error('unknown-hub', message));
  }
  checkPaths(site, report);
}

/** If two hubs apply to every request, the first one handles its path and everything below it. */
function checkPaths({ hub, moreHubs, routes }: SiteConfig, report: Report): void {
  const before: HubConfig[] = [];
  for (const { matcher, handler } of routes) {
    if (handler.kind !== 'hub' || matcher !== null) continue;
    const { name } = handler;
    const [here, namesake] = name === null ? [hub] : moreHubs.filter((each) => each.name === name);
    // Two hubs with the same name have already been reported.
    if (here === undefined || here === null || namesake !== undefined) continue;
    const other = before.find((each) => isBelow(hubPath(here), hubPath(each)));
    if (other !== undefined) {
      const message = `this hub cannot be reached: another hub answers at ${hubPath(other)}`;
      const hint = 'give each hub its own path or a matcher: hub @matcher { … }';
      report(here, error('several-hubs', message, hint), { other });
    }
    before.push(here);
  }
}

function isBelow(path: string, other: string): boolean {
  return path === other || path.startsWith(`${other}/`);
}
