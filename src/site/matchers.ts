import type { ConditionData, MatchCondition, RequestMatcher } from '../config/routes.ts';
import type { Exchange } from '../http/exchange.ts';
import type { HidesFile } from './site-files.ts';

/**
 * Compiles the predicate of a matcher; null matches every request. Captures of regular expressions become
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
 * The same for callers that cannot wait. A condition that looks up files is false here. A configuration with
 * such a condition in this place is refused earlier (`file-matcher`).
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

// A condition returns a boolean. Only `file` returns a promise, and only then does a route wait. Discovery
// cannot wait, so it accepts no matcher with `file`.

/** Whether something holds: at once if the request alone decides, later if files must be looked up. */
export type Held = boolean | Promise<boolean>;

/**
 * Whether a condition holds for a request in its current state.
 *
 * @throws HttpError if a condition refuses the request (`file` with `=404`)
 */
export type Predicate = (exchange: Exchange) => Held;

/** Compiles a matcher inside a condition. */
export type CompileMatcher = (matcher: RequestMatcher) => Predicate;

/** The part of a matcher that runs: it compiles a condition. Called once per configuration. */
export type CompileCondition<Condition> = (
  condition: Condition,
  compileMatcher: CompileMatcher,
  hidesFile: HidesFile,
) => Predicate;

/** Every condition, by its `kind`. */
export type ConditionRegistry = Readonly<
  Record<
    string,
    {
      readonly data: ConditionData<MatchCondition>;
      compile(...given: Parameters<CompileCondition<MatchCondition>>): Predicate;
    }
  >
>;

/**
 * Whether all of them hold. They are evaluated in their order, and synchronously as long as each returns at
 * once.
 */
export function allHold(predicates: readonly Predicate[], exchange: Exchange, from = 0): Held {
  for (const [index, predicate] of predicates.entries()) {
    if (index < from) continue;
    const held = predicate(exchange);
    if (held === false) return false;
    if (held !== true) {
      return held.then((later) => later && allHold(predicates, exchange, index + 1));
    }
  }
  return true;
}

export function negated(predicate: Predicate): Predicate {
  return (exchange) => {
    const held = predicate(exchange);
    return typeof held === 'boolean' ? !held : held.then((later) => !later);
  };
}
