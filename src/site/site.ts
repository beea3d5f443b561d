import { type RouteConfig, dataOf, type HandlerConfig } from '../config/routes.ts';
import type { SiteContext, HandlerContext } from './handler-context.ts';
import {
  about,
  type Exchange,
  type Handler,
  type Next,
  type RequestHook,
} from '../http/exchange.ts';
import { answerError } from '../http/answer.ts';
import { HttpError, reasonPhrase } from '../http/errors.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import { withoutSecretParts } from '../kernel/secret.ts';
import { describeError, setErrorStatus } from '../http/request-variables.ts';
import { HIDDEN, secretsOf, withoutSecrets } from './request-secrets.ts';
import { SubExchange } from './sub-exchange.ts';
import { isDeepStrictEqual } from 'node:util';
import { compileMatcher, type Predicate } from './text-pattern.ts';
import type { SiteAddress } from '../config/config.ts';
import { hostname } from './placeholders.ts';

/** nginx's status for a client that has left; it appears only in logs. */
const CLIENT_LEFT = 499;

/** Responds to every request of a site, whatever happens. Never rejects. */
export type SiteHandler = (exchange: Exchange) => Promise<void>;

/**
 * Compiles a site. The response to an error of its routes comes from its error routes; without any, it
 * contains the phrase of the status and the request's id. If no route responds, the status is 404.
 *
 * @throws HubgateError the errors of {@link compileRoutes}
 */
export function compileSite(
  site: { readonly routes: readonly RouteConfig[]; readonly errorRoutes: readonly RouteConfig[] },
  context: SiteContext,
): SiteHandler {
  const routes = compileRoutes(site.routes, context);
  const errorRoutes =
    site.errorRoutes.length === 0 ? null : compileRoutes(site.errorRoutes, context);
  const unanswered: Next = () => {};
  const answers = { clock: context.clock, errorRoutes };
  const handler = (exchange: Exchange): void | Promise<void> => routes(exchange, unanswered);
  const done = (exchange: Exchange): Promise<void> | undefined =>
    exchange.begun || exchange.abandoned
      ? undefined
      : answerFailure(exchange, new HttpError(404, 'no route answered'), answers);
  return (exchange) => run(exchange, handler, answers, done);
}

/** Wraps the handlers of a site, so that errors outside its routes get a response too. Never rejects. */
export function answerErrors(
  handler: (exchange: Exchange) => void | Promise<void>,
  clock: Clock,
): SiteHandler {
  const answers = { clock, errorRoutes: null };
  return (exchange) => run(exchange, handler, answers);
}

/** Runs the hooks of a site before its routes. The error of a hook is answered without the error routes. */
export function withHooks(
  routes: SiteHandler,
  hooks: readonly RequestHook[],
  clock: Clock,
): SiteHandler {
  const answers = { clock, errorRoutes: null };
  return (exchange) => {
    try {
      for (const hook of hooks) hook(exchange);
    } catch (error) {
      return answerFailure(exchange, error, answers);
    }
    return routes(exchange);
  };
}

/** How the errors of a site are answered. */
interface ErrorAnswers {
  readonly clock: Clock;
  readonly errorRoutes: Handler | null;
}

/**
 * Runs a handler, and responds to its error. Never rejects. An async function would cost each request a frame
 * and a turn of the microtasks.
 */
function run(
  exchange: Exchange,
  handler: (exchange: Exchange) => void | Promise<void>,
  answers: ErrorAnswers,
  done: (exchange: Exchange) => Promise<void> | undefined = () => undefined,
): Promise<void> {
  try {
    const running = handler(exchange);
    if (running === undefined) return done(exchange) ?? Promise.resolve();
    return running.then(
      () => done(exchange),
      (error: unknown) => answerFailure(exchange, error, answers),
    );
  } catch (error) {
    return answerFailure(exchange, error, answers);
  }
}

async function answerFailure(
  exchange: Exchange,
  error: unknown,
  { clock, errorRoutes }: ErrorAnswers,
): Promise<void> {
  const status = error instanceof HttpError ? error.status : 500;
  const shown = error instanceof HttpError ? error.shown : null;
  note(exchange, status, error);
  if (exchange.begun || status === CLIENT_LEFT) return exchange.abort();
  try {
    setErrorStatus(exchange, status);
    const asked =
      errorRoutes === null
        ? exchange
        : await runErrorRoutes(exchange, { status, shown }, errorRoutes);
    // With the fields of the error routes, also where none of them answers.
    if (!exchange.begun) answerError(asked, status, { shown, atMs: clock.now() });
  } catch (second) {
    note(exchange, status, second);
    if (exchange.begun) exchange.abort();
    else answerError(exchange, status, { shown, atMs: clock.now() });
  }
  // What an upstream left whole, and no page wanted, must not hold up the connection.
  if (exchange.isBodyWhole) exchange.body.resume();
}

/**
 * The routes see the original request, whatever was rewritten. They see a body only if nothing has read any of it, because half a
 * body is worse than none.
 */
async function runErrorRoutes(
  exchange: Exchange,
  { status, shown }: { readonly status: number; readonly shown: string | null },
  routes: Handler,
): Promise<Exchange> {
  const { originalMethod: method, originalTarget: target } = exchange;
  // A body that is too large for the site is too large for its error pages.
  const hasBody = status !== 413 && exchange.isBodyWhole;
  const sub = new SubExchange(exchange, { method, target, hasBody });
  describeError(sub, reasonPhrase(status), shown ?? '');
  await routes(sub, () => Promise.resolve());
  return sub;
}

function note(exchange: Exchange, status: number, error: unknown): void {
  // The text of the directive error may contain what its placeholders read.
  const text =
    error instanceof HttpError
      ? withoutSecrets(error.message, secretsOf(exchange, false), HIDDEN)
      : messageOf(error);
  const fields = { status, error: withoutSecretParts(text, HIDDEN) };
  if (!(error instanceof HttpError))
    exchange.log.error('A handler failed', about(exchange, { ...fields, stack: stackOf(error) }));
  else if (status >= 500) exchange.log.warn('The request failed', about(exchange, fields));
  else if (status === CLIENT_LEFT)
    exchange.log.info('The connection ended before the response', fields);
  else exchange.log.debug('The request was refused', fields);
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}

interface Step {
  readonly matches: Predicate;
  readonly handler: Handler;
  /** Of the steps with the same group, only the first that matches runs. */
  readonly group: string | null;
}

/**
 * Compiles routes to one handler. It runs the routes that match, in their order, until one responds. A
 * matcher is evaluated in its turn, so it sees the rewrites of earlier routes; neighbours with the same
 * matcher are matched once.
 *
 * @throws HubgateError `invalid-pattern`, `invalid-address-range`, and the errors of the handlers
 */
function compileRoutes(routes: readonly RouteConfig[], site: SiteContext): Handler {
  const context = { ...site, compileRoutes: (inner: typeof routes) => compileRoutes(inner, site) };
  const steps: Step[] = [];
  const groups = groupsOf(routes, site);
  for (const [index, { matcher, handler }] of routes.entries()) {
    const group = groups[index] ?? null;
    const compiled = compileHandler(handler, context);
    const before = steps.at(-1);
    // Neighbours with the same matcher are one, as in Caddy: what the first of them changes does not decide
    // whether the second one runs, and the later `root` wins.
    const isSame =
      matcher === routes[index - 1]?.matcher ||
      isDeepStrictEqual(matcher, routes[index - 1]?.matcher);
    if (before !== undefined && before.group === group && isSame) {
      steps[steps.length - 1] = { ...before, handler: inTurn(before.handler, compiled) };
      continue;
    }
    const matches = compileMatcher(matcher, site.registry.matchers, site.hidesFile);
    steps.push({ matches, handler: compiled, group });
  }
  const hasGroups = steps.some(({ group }) => group !== null);
  return (exchange, next) => {
    const run = { steps, takenGroups: hasGroups ? new Set<string>() : NO_GROUPS, exchange, next };
    return runFrom(run, 0);
  };
}

/** The group of each route. One that has a group for itself has none, but a `rewrite` is always in one. */
function groupsOf(routes: readonly RouteConfig[], site: SiteContext): readonly (string | null)[] {
  const groups = routes.map(({ handler }) => groupOf(handler, site));
  const members = new Map<string | null, number>();
  for (const group of groups) members.set(group, (members.get(group) ?? 0) + 1);
  return groups.map((group, index) => {
    const isShared = (members.get(group) ?? 0) > 1;
    return isShared || routes[index]?.handler.kind === 'rewrite' ? group : null;
  });
}

function inTurn(first: Handler, second: Handler): Handler {
  return (exchange, next) =>
    first(exchange, (other) =>
      other === undefined || other === exchange
        ? second(exchange, next)
        : second(other, (further) => next(further ?? other)),
    );
}

function groupOf(handler: HandlerConfig, { registry }: SiteContext): string | null {
  const group = dataOf(handler, registry).group?.(handler) ?? null;
  return group === null ? null : `${handler.kind} ${group}`;
}

/** The state of one request in its routes. */
interface Run {
  readonly steps: readonly Step[];
  readonly takenGroups: Set<string>;
  readonly exchange: Exchange;
  readonly next: Next;
}

/** For routes without groups: nothing is ever added to it. */
const NO_GROUPS = new Set<string>();

/** Without an await of its own, because most steps pass a request on, and each would cost a frame. */
function runFrom(run: Run, start: number): void | Promise<void> {
  const { steps, takenGroups, exchange } = run;
  for (let i = start; i < steps.length; i += 1) {
    const step = steps[i];
    if (step === undefined) break;
    if (step.group !== null && takenGroups.has(step.group)) continue;
    const held = step.matches(exchange);
    if (held === true) return runStep(run, step, i);
    if (held === false) continue;
    return held.then((holds) => (holds ? runStep(run, step, i) : runFrom(run, i + 1)));
  }
  return run.next(exchange);
}

function runStep(run: Run, { group, handler }: Step, index: number): void | Promise<void> {
  if (group !== null) run.takenGroups.add(group);
  return handler(run.exchange, (other) =>
    runFrom(other === undefined || other === run.exchange ? run : fork(run, other), index + 1),
  );
}

/** The rest of a run for another exchange; it may be run more than once. */
function fork(run: Run, exchange: Exchange): Run {
  return { ...run, exchange, takenGroups: new Set(run.takenGroups) };
}

function compileHandler(config: HandlerConfig, context: HandlerContext): Handler {
  const compile = context.registry.directives[config.kind]?.compile;
  if (compile === undefined) throw new TypeError(`no handler is registered for "${config.kind}"`);
  return compile(config, context);
}

/** Where requests arrive: one scheme per port. */
export interface Entrance {
  readonly scheme: 'http' | 'https';
  /** null if addresses are served whatever their port. */
  readonly port: number | null;
  /** The ports of addresses without one. */
  readonly defaultPorts: { readonly http: number; readonly https: number };
}

export interface RoutedSite<T> {
  readonly addresses: readonly SiteAddress[];
  readonly site: T;
}

/**
 * Finds the site of a host on one listener: the exact name, else the wildcard of its domain, else the site
 * for any host. Sites that do not listen there are left out. `host` is the value that the client sent,
 * including a port.
 */
export function createSiteRouter<T>(
  sites: readonly RoutedSite<T>[],
  entrance: Entrance,
): (host: string) => T | undefined {
  const exact = new Map<string, T>();
  const wildcards = new Map<string, T>();
  let any: T | undefined;
  for (const { addresses, site } of sites) {
    for (const address of addresses) {
      const port = address.port ?? entrance.defaultPorts[address.scheme];
      const isHere = entrance.port === null || port === entrance.port;
      if (address.scheme !== entrance.scheme || !isHere) continue;
      if (address.host === '') any ??= site;
      else if (address.host.startsWith('*.')) addNew(wildcards, address.host.slice(2), site);
      else addNew(exact, address.host, site);
    }
  }
  return (host) => {
    const name = hostname(host);
    const domain = name.slice(name.indexOf('.') + 1);
    return exact.get(name) ?? (domain === name ? undefined : wildcards.get(domain)) ?? any;
  };
}

function addNew<T>(map: Map<string, T>, key: string, value: T): void {
  if (!map.has(key)) map.set(key, value);
}
