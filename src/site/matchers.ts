import type { MatchCondition, RequestMatcher } from '../config/config.ts';
import { predicates } from '../matchers/predicates.ts';
import type { CompileCondition, Predicate } from './predicate.ts';

/**
 * The predicate of a matcher; null matches every request. Captures of regular expressions become
 * `{re.NAME.N}`, or `{re.N}` without a name.
 *
 * @throws HubgateError `invalid-pattern`, `invalid-address-range`
 */
export function compileMatcher(matcher: RequestMatcher | null): Predicate {
  if (matcher === null) return () => true;
  const conditions = matcher.map(compileCondition);
  return (exchange) => conditions.every((holds) => holds(exchange));
}

function compileCondition(condition: MatchCondition): Predicate {
  // The registry's type has a test of each kind under that kind; an index forgets the pairs.
  const compile = predicates[condition.kind] as CompileCondition<MatchCondition>;
  return compile(condition, compileMatcher);
}
