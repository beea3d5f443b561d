import type { RequestMatcher } from '../config/config.ts';
import type { Exchange } from '../http/exchange.ts';

/** Whether a condition holds for a request, as far as it has come. */
export type Predicate = (exchange: Exchange) => boolean;

/** Compiles a matcher inside of a condition. */
export type CompileMatcher = (matcher: RequestMatcher) => Predicate;

/** What a condition tests: the face of a matcher that runs. Called once per configuration. */
export type CompileCondition<Condition> = (
  condition: Condition,
  compileMatcher: CompileMatcher,
) => Predicate;
