import type { HandlerConfig, RouteConfig } from '../config/config.ts';
import { dataOf } from '../config/routes.ts';
import type { CompileHandler, HandlerContext, SiteContext } from '../directives/handler-context.ts';
import { handlers } from '../directives/handlers.ts';
import type { Exchange, Handler, Next } from '../http/exchange.ts';
import { compileMatcher } from './matchers.ts';
import type { Predicate } from './predicate.ts';

interface Step {
  readonly matches: Predicate;
  readonly handler: Handler;
  /** Of the steps with one group only the first that matches runs. */
  readonly group: number | null;
}

/**
 * Compiles routes to one handler that runs those that match, in their order, until one answers.
 * A matcher is asked when its turn comes, so it sees what earlier routes rewrote.
 *
 * @throws HubgateError `invalid-pattern`, `invalid-address-range`, and what the handlers throw
 */
export function compileRoutes(routes: readonly RouteConfig[], site: SiteContext): Handler {
  const context = { ...site, compileRoutes: (inner: typeof routes) => compileRoutes(inner, site) };
  const steps = routes.map(
    ({ matcher, handler }): Step => ({
      matches: compileMatcher(matcher),
      handler: compileHandler(handler, context),
      group: dataOf(handler).group?.(handler) ?? null,
    }),
  );
  return (exchange, next) => runFrom(steps, 0, new Set(), exchange, next);
}

async function runFrom(
  steps: readonly Step[],
  start: number,
  takenGroups: Set<number>,
  exchange: Exchange,
  next: Next,
): Promise<void> {
  for (let i = start; i < steps.length; i += 1) {
    const step = steps[i];
    if (step === undefined) break;
    if (step.group !== null && takenGroups.has(step.group)) continue;
    const held = step.matches(exchange);
    if (held === false || (held !== true && !(await held))) continue;
    if (step.group !== null) takenGroups.add(step.group);
    await step.handler(exchange, () => runFrom(steps, i + 1, takenGroups, exchange, next));
    return;
  }
  await next();
}

function compileHandler(config: HandlerConfig, context: HandlerContext): Handler {
  // The registry's type has a handler of each kind under that kind; an index forgets the pairs.
  const compile = handlers[config.kind] as CompileHandler<HandlerConfig>;
  return compile(config, context);
}
