import type { MatchCondition, RequestMatcher } from '../config/config.ts';
import type { Exchange } from '../http/exchange.ts';
import { predicates } from '../matchers/predicates.ts';
import type { HidesFile } from './site-files.ts';
import { allHold, type CompileCondition, type Predicate } from './predicate.ts';

/**
 * The predicate of a matcher; null matches every request. Captures of regular expressions become
 * `{re.NAME.N}`, or `{re.N}` without a name.
 *
 * @throws HubgateError `invalid-pattern`, `invalid-address-range`
 */
export function compileMatcher(matcher: RequestMatcher | null, hidesFile: HidesFile): Predicate {
  if (matcher === null) return () => true;
  const conditions = matcher.map((condition) => compileCondition(condition, hidesFile));
  return (exchange) => allHold(conditions, exchange);
}

/**
 * The same for who cannot wait. A condition that asks files does not hold here; a configuration
 * that has one in such a place is refused before (`file-matcher`).
 */
export function compileRequestMatcher(
  matcher: RequestMatcher | null,
): (exchange: Exchange) => boolean {
  const matches = compileMatcher(matcher, () => true);
  return (exchange) => matches(exchange) === true;
}

function compileCondition(condition: MatchCondition, hidesFile: HidesFile): Predicate {
  // The registry's type has a test of each kind under that kind; an index forgets the pairs.
  const compile = predicates[condition.kind] as CompileCondition<MatchCondition>;
  return compile(condition, (inner) => compileMatcher(inner, hidesFile), hidesFile);
}
