import type { Grants, JsonValue, SubscribeGrant } from '../hub/grants.ts';
import {
  compileMatcher,
  type SubscriptionMatcher,
  type MatcherCache,
  type MatchType,
} from '../hub/matcher.ts';
import { messageOf } from '../kernel/error.ts';
import { completed, type Budget, unlimitedBudget } from '../kernel/scheduler.ts';
import { InvalidTokenError, quote } from './diagnosis.ts';
import { isJsonObject, type JsonObject, parseToken } from './unverified-token.ts';

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
  const publish: SubscriptionMatcher[] = [];
  const subscribe: SubscribeGrant[] = [];
  let total = 0;
  for (const { where, detail } of details) {
    const actions = readActions(detail['actions'], `${where}.actions`);
    const topics = readTopics(detail['topics'], `${where}.topics`);
    total += topics.length;
    if (total > MAX_MATCHERS) {
      throw malformed('authorization_details', `at most ${MAX_MATCHERS} topics in all`, total);
    }
    const matchers: SubscriptionMatcher[] = [];
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
): SubscriptionMatcher {
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
): SubscriptionMatcher {
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

/** The names that distinguish the grants of a hub from those of others. */
export interface GrantNames {
  readonly detailType: string;
  /** The claim of 0.x tokens. */
  readonly legacyClaim: string;
  /** Whether the hub has `protocol_version_compatibility`. */
  readonly compatible: boolean;
  /** Whether this process reads 0.x tokens. */
  readonly readsLegacy: boolean;
}

/** Grants that are listed; the others are counted. */
const MAX_LISTED = 50;

/**
 * Describes in words what a token grants according to its claims. Nothing in it has been verified. Empty if
 * it is not a token.
 */
export function describeGranted(text: string, names: GrantNames): readonly string[] {
  let claims: JsonObject;
  try {
    ({ claims } = parseToken(text));
  } catch {
    // The check `shape` reports what is wrong with it.
    return [];
  }
  const details = claims['authorization_details'];
  const legacy = claims[names.legacyClaim];
  if (details === undefined && legacy !== undefined) return describeLegacy(legacy, names);
  const lines = Array.isArray(details) ? describeDetails(details, names) : [];
  return lines.length === 0
    ? ['It grants nothing: its bearer can read public updates only, and cannot publish.']
    : ['It grants:', ...bounded(lines)];
}

function describeDetails(details: readonly JsonValue[], { detailType }: GrantNames): string[] {
  return details.filter(isJsonObject).flatMap((detail) => {
    if (detail['type'] !== detailType) {
      return [
        `  nothing at this hub, by an entry of the type ${quote(detail['type'])}: this hub uses another type`,
      ];
    }
    const actions = list(detail['actions']).filter((one) => typeof one === 'string');
    const payload =
      detail['payload'] === undefined ? '' : `, with payload ${quote(detail['payload'])}`;
    return list(detail['topics']).flatMap((topic) =>
      actions.map((action) => `  ${action} ${describeMatcher(topic)}${payload}`),
    );
  });
}

/** Describes what a 0.x token grants, why it is treated differently, and the equivalent in 1.0. */
function describeLegacy(claim: JsonValue, names: GrantNames): readonly string[] {
  const { legacyClaim, detailType, compatible, readsLegacy } = names;
  const entries = isJsonObject(claim)
    ? (['publish', 'subscribe'] as const).flatMap((action) =>
        list(claim[action]).map((entry) => ({ action, topic: modernMatcher(entry) })),
      )
    : [];
  const listed = entries.map(({ action, topic }) => `  ${action} ${describeMatcher(topic)}`);
  const payload = isJsonObject(claim) ? claim['payload'] : undefined;
  const details = (['publish', 'subscribe'] as const).flatMap((action) => {
    const topics = entries.filter((one) => one.action === action).map(({ topic }) => topic);
    if (topics.length === 0) return [];
    const more = action === 'publish' || payload === undefined ? {} : { payload };
    return [{ type: detailType, actions: [action], topics, ...more }];
  });
  const missing = [
    ...(compatible ? [] : ['protocol_version_compatibility 8 in the hub']),
    ...(readsLegacy ? [] : ['to start hubgate with NODE_OPTIONS=--conditions=deprecated_claim']),
  ];
  return [
    `It is a 0.x token: it grants by the claim ${quote(legacyClaim)}, which version 1.0 of the protocol no longer has.`,
    ...(listed.length === 0 ? ['It grants nothing.'] : ['It would grant:', ...bounded(listed)]),
    missing.length === 0
      ? 'This hub reads it.'
      : `This hub does not read it. That needs ${missing.join(' and ')}.`,
    ...(details.length === 0
      ? []
      : [
          'It is better to issue it with the header "typ": "at+jwt", with "iss", "aud" and "exp", and with:',
          `  "authorization_details": ${JSON.stringify(details)}`,
        ]),
  ];
}

/** 0.x has strings, which may be URI templates, and in later versions objects with `matchType`. */
function modernMatcher(entry: JsonValue): JsonValue {
  if (typeof entry === 'string') {
    if (!/\{[^}]*\}/.test(entry)) return { match: entry };
    const match = entry.replaceAll(/\{[^A-Za-z0-9_}]?([A-Za-z0-9_]*)[^}]*\}/g, ':$1');
    return { match, match_type: 'urlpattern' };
  }
  if (!isJsonObject(entry)) return entry;
  const { match = null, matchType } = entry;
  return typeof matchType === 'string' && matchType.toLowerCase() !== 'exact'
    ? { match, match_type: matchType.toLowerCase() }
    : { match };
}

function describeMatcher(topic: JsonValue): string {
  if (!isJsonObject(topic)) return `something that cannot be read: ${quote(topic)}`;
  const { match, match_type: type } = topic;
  if (match === '*') return 'everything';
  if (type === 'urlpattern') return `all URLs that match ${quote(match)}`;
  return type === undefined || type === 'exact' || type === null || type === ''
    ? `the topic ${quote(match)}`
    : `what matches ${quote(match)} as ${quote(type)}`;
}

function list(value: JsonValue | undefined): readonly JsonValue[] {
  return Array.isArray(value) ? value : [];
}

function bounded(lines: readonly string[]): readonly string[] {
  const rest = lines.length - MAX_LISTED;
  return rest > 0 ? [...lines.slice(0, MAX_LISTED), `  and ${rest} more`] : lines;
}
