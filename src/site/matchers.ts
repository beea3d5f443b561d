import type { MatchCondition, RequestMatcher } from '../config/routes.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HidesFile } from './site-files.ts';
import { allHold, type ConditionRegistry, type Predicate } from './predicate.ts';

/**
 * The predicate of a matcher; null matches every request. Captures of regular expressions become
 * `{re.NAME.N}`, or `{re.N}` without a name.
 *
 * @throws HubgateError `invalid-pattern`, `invalid-address-range`
 */
export function compileMatcher(
  matcher: RequestMatcher | null,
  registry: ConditionRegistry,
  hidesFile: HidesFile,
): Predicate {
  if (matcher === null) return () => true;
  const conditions = matcher.map((condition) => compileCondition(condition, registry, hidesFile));
  return (exchange) => allHold(conditions, exchange);
}

/**
 * The same for who cannot wait. A condition that asks files does not hold here; a configuration
 * that has one in such a place is refused before (`file-matcher`).
 */
export function compileRequestMatcher(
  matcher: RequestMatcher | null,
  registry: ConditionRegistry,
): (exchange: Exchange) => boolean {
  const matches = compileMatcher(matcher, registry, () => true);
  return (exchange) => matches(exchange) === true;
}

function compileCondition(
  condition: MatchCondition,
  registry: ConditionRegistry,
  hidesFile: HidesFile,
): Predicate {
  const matcher = registry[condition.kind];
  if (matcher === undefined)
    throw new TypeError(`no matcher is registered for "${condition.kind}"`);
  return matcher.compile(
    condition,
    (inner) => compileMatcher(inner, registry, hidesFile),
    hidesFile,
  );
}
