import type { Grants, JsonValue, SubscribeGrant } from '../hub/grants.ts';
import { compileMatcher, type Matcher, type MatcherCache, type MatchType } from '../hub/matcher.ts';
import { messageOf } from '../kernel/error.ts';
import { completed, type Budget, unlimitedBudget } from '../kernel/scheduler.ts';
import { InvalidTokenError, quote } from './diagnosis.ts';
import { isJsonObject, type JsonObject } from './strict-json.ts';

/** Most entries for this hub in one token. */
const MAX_DETAILS = 100;
/** Most matchers in all entries for this hub in one token. */
const MAX_MATCHERS = 100;

/** The context for compiling a grant. */
export interface GrantContext {
  /** `type` of this hub's authorization details. */
  readonly detailType: string;
  /** See `hubBase`. */
  readonly base: string;
  readonly cache: MatcherCache | null;
}

/**
 * Reads the grants of the claim `authorization_details` (RFC 9396) without interruption; see {@link
 * authorizationDetails}.
 *
 * @throws InvalidTokenError
 */
export function readAuthorizationDetails(
  claim: JsonValue | undefined,
  context: GrantContext,
): Grants {
  return completed(authorizationDetails(claim, context, unlimitedBudget()));
}

/**
 * Reads the grants of the claim `authorization_details`. One invalid entry for this hub makes the token
 * invalid; entries for others are ignored. Yields when the budget is used up.
 *
 * @throws InvalidTokenError
 */
export function* authorizationDetails(
  claim: JsonValue | undefined,
  context: GrantContext,
  budget: Budget,
): Generator<void, Grants, void> {
  if (claim === undefined || claim === null) return { publish: [], subscribe: [] };
  if (!Array.isArray(claim)) throw malformed('authorization_details', 'an array', claim);
  const details = claim.flatMap((entry, index) => ownDetail(entry, index, context.detailType));
  if (details.length > MAX_DETAILS) {
    throw malformed('authorization_details', `at most ${MAX_DETAILS} entries`, details.length);
  }
  const publish: Matcher[] = [];
  const subscribe: SubscribeGrant[] = [];
  let total = 0;
  for (const { where, detail } of details) {
    const actions = readActions(detail['actions'], `${where}.actions`);
    const topics = readTopics(detail['topics'], `${where}.topics`);
    total += topics.length;
    if (total > MAX_MATCHERS) {
      throw malformed('authorization_details', `at most ${MAX_MATCHERS} topics in all`, total);
    }
    const matchers: Matcher[] = [];
    for (const [at, topic] of topics.entries()) {
      if (budget.isSpent) yield;
      matchers.push(readMatcher(topic, `${where}.topics[${at}]`, context, budget));
    }
    if (actions.includes('publish')) publish.push(...matchers);
    if (actions.includes('subscribe')) {
      const payload = detail['payload'];
      subscribe.push(payload === undefined ? { matchers } : { matchers, payload });
    }
  }
  return { publish, subscribe };
}

function ownDetail(
  entry: JsonValue,
  index: number,
  detailType: string,
): readonly { readonly where: string; readonly detail: JsonObject }[] {
  const where = `authorization_details[${index}]`;
  if (!isJsonObject(entry)) throw malformed(where, 'an object', entry);
  const { type } = entry;
  if (type !== undefined && typeof type !== 'string') {
    throw malformed(`${where}.type`, 'a string', type);
  }
  return type === detailType ? [{ where, detail: entry }] : [];
}

/** Unknown actions grant nothing and are not an error, because others may define them. */
function readActions(value: JsonValue | undefined, where: string): readonly string[] {
  const isList = Array.isArray(value) && value.length > 0;
  if (!isList || !value.every((action) => typeof action === 'string')) {
    throw malformed(where, 'a non-empty array of "publish" and "subscribe"', value);
  }
  return value;
}

function readTopics(value: JsonValue | undefined, where: string): readonly JsonValue[] {
  if (!Array.isArray(value) || value.length === 0) {
    throw malformed(where, 'a non-empty array of {"match": …}', value);
  }
  return value;
}

function readMatcher(
  value: JsonValue,
  where: string,
  context: GrantContext,
  budget: Budget,
): Matcher {
  if (!isJsonObject(value)) throw malformed(where, 'an object {"match": …}', value);
  const { match, match_type: type } = value;
  if (typeof match !== 'string' || match === '') {
    throw malformed(`${where}.match`, 'a non-empty string', match);
  }
  const matchType = readMatchType(type, `${where}.match_type`);
  return grantMatcher({ match, matchType }, where, context, budget);
}

function readMatchType(value: JsonValue | undefined, where: string): MatchType {
  if (value === undefined || value === null || value === '') return 'exact';
  if (value === 'exact' || value === 'urlpattern') return value;
  throw malformed(where, '"exact" or "urlpattern"', value);
}

/** @throws InvalidTokenError for a matcher that does not compile */
export function grantMatcher(
  spec: { readonly match: string; readonly matchType: MatchType },
  where: string,
  { base, cache }: Pick<GrantContext, 'base' | 'cache'>,
  budget: Budget,
): Matcher {
  try {
    return compileMatcher(spec, base, cache, budget);
  } catch (error) {
    throw new InvalidTokenError(
      {
        check: where,
        expected: 'a matcher that compiles',
        found: `${quote(spec.match)}: ${messageOf(error)}`,
        fix: 'correct the matcher where the token is issued',
      },
      { cause: error },
    );
  }
}

export function malformed(check: string, expected: string, found: unknown): InvalidTokenError {
  return new InvalidTokenError({
    check,
    expected,
    found: quote(found),
    fix: 'correct the claim where the token is issued; one invalid entry makes the whole token invalid',
  });
}
