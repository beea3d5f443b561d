import { isDeepStrictEqual } from 'node:util';
import { dataOf, type HandlerConfig, type RouteConfig } from '../config/routes.ts';
import type { HandlerContext, SiteContext } from './handler-context.ts';
import type { Exchange, Handler, Next } from '../http/exchange.ts';
import { compileMatcher, type Predicate } from './matchers.ts';

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
export function compileRoutes(routes: readonly RouteConfig[], site: SiteContext): Handler {
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

/** Two handlers as one. */
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
