import { RE2JS } from 're2js';
import type { Grants, JsonValue, SubscribeGrant } from '../hub/grants.ts';
import { compileSelector, type GrantMatcher, MAX_MATCHER_BYTES } from '../hub/matcher.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Budget } from '../kernel/scheduler.ts';
import { hasForbiddenCharacters } from '../hub/topic.ts';
import { type GrantContext, grantMatcher, malformed } from './authorization-details.ts';
import { isJsonObject } from './unverified-token.ts';
import type { LegacyForms } from '../config/config.ts';

/** Most entries of each list. */
const MAX_ENTRIES = 1000;

/** Cost of compiling a regular expression, and of each of its characters, in steps. */
const COMPILE_STEPS = 5_000;
const COMPILE_STEPS_PER_CHARACTER = 100;

type LegacyMatchType = 'exact' | 'urlpattern' | 'regexp';

/** The values of 0.x, and those of 1.0. */
const MATCH_TYPES: ReadonlyMap<JsonValue, LegacyMatchType> = new Map([
  ['Exact', 'exact'],
  ['URLPattern', 'urlpattern'],
  ['Regexp', 'regexp'],
  ['exact', 'exact'],
  ['urlpattern', 'urlpattern'],
]);

/**
 * Reads the claim of a 0.x token: `{publish: […], subscribe: […], payload}` with entries `{match, matchType,
 * payload}`, or plain strings if they are switched on. Loaded only with `--conditions=deprecated_claim`.
 */
export const readLegacyClaim: LegacyClaimReader | null = function* (claim, name, context, budget) {
  if (claim === undefined || claim === null) return { publish: [], subscribe: [] };
  if (!isJsonObject(claim)) throw malformed(name, 'an object', claim);
  const publish = yield* readEntries(claim['publish'], `${name}.publish`, context, budget);
  const { payload } = claim;
  const grants = {
    publish: publish.flatMap(({ matchers }) => matchers),
    subscribe: yield* readEntries(claim['subscribe'], `${name}.subscribe`, context, budget),
  };
  return payload === undefined ? grants : { ...grants, fallbackPayload: payload };
};

function* readEntries(
  list: JsonValue | undefined,
  where: string,
  context: LegacyContext,
  budget: Budget,
): Generator<void, readonly SubscribeGrant[], void> {
  if (list === undefined || list === null) return [];
  if (!Array.isArray(list)) throw malformed(where, 'an array', list);
  if (list.length > MAX_ENTRIES) {
    throw malformed(where, `at most ${MAX_ENTRIES} entries`, list.length);
  }
  const grants: SubscribeGrant[] = [];
  for (const [index, entry] of list.entries()) {
    if (budget.isSpent) yield;
    grants.push(readEntry(entry, `${where}[${index}]`, context, budget));
  }
  return grants;
}

function readEntry(
  entry: JsonValue,
  where: string,
  context: LegacyContext,
  budget: Budget,
): SubscribeGrant {
  if (typeof entry === 'string' && context.legacyForms.strings) {
    return { matchers: [selectorMatcher(entry, where, context, budget)] };
  }
  if (!isJsonObject(entry)) throw malformed(where, expectedEntry(entry), entry);
  const { match, matchType, match_type: modernType, payload } = entry;
  if (typeof match !== 'string' || match === '') {
    throw malformed(`${where}.match`, 'a non-empty string', match);
  }
  const written = matchType ?? modernType ?? 'Exact';
  const type = MATCH_TYPES.get(written);
  if (type === undefined) {
    throw malformed(`${where}.matchType`, '"Exact", "URLPattern" or "Regexp"', written);
  }
  const matcher =
    type === 'regexp' && match !== '*'
      ? regexpMatcher(match, where, budget)
      : grantMatcher(
          { match, matchType: type === 'regexp' ? 'exact' : type },
          where,
          context,
          budget,
        );
  return payload === undefined ? { matchers: [matcher] } : { matchers: [matcher], payload };
}

function expectedEntry(entry: JsonValue): string {
  const expected = 'an object {"match": …}';
  const fix = ' (or protocol_version_compatibility 8 { strings })';
  return typeof entry === 'string' ? expected + fix : expected;
}

function selectorMatcher(
  text: string,
  where: string,
  { legacyForms }: LegacyContext,
  budget: Budget,
): GrantMatcher {
  try {
    return compileSelector(text, legacyForms.templates, budget);
  } catch (error) {
    if (!(error instanceof HubgateError)) throw error;
    throw malformed(where, `a topic or a URI Template that compiles (${error.message})`, text);
  }
}

/** Matches the whole topic, in linear time. */
function regexpMatcher(text: string, where: string, budget: Budget): GrantMatcher {
  budget.spend(COMPILE_STEPS + text.length * COMPILE_STEPS_PER_CHARACTER);
  if (hasForbiddenCharacters(text) || Buffer.byteLength(text) > MAX_MATCHER_BYTES) {
    const limit = `at most ${MAX_MATCHER_BYTES} bytes without control characters`;
    throw malformed(`${where}.match`, limit, text);
  }
  const pattern = compileRegexp(text, where);
  return { kind: 'predicate', spec: null, test: (topic) => pattern.matches(topic) };
}

function compileRegexp(text: string, where: string): RE2JS {
  try {
    return RE2JS.compile(text);
  } catch {
    throw malformed(`${where}.match`, 'a regular expression in RE2 syntax', text);
  }
}

export type LegacyContext = Pick<GrantContext, 'base' | 'cache'> & {
  /** The other forms that an entry can have instead of an object. */
  readonly legacyForms: LegacyForms;
};

/**
 * Reads the claim of a 0.x token; yields when the budget is used up.
 *
 * @throws InvalidTokenError
 */
export type LegacyClaimReader = (
  claim: JsonValue | undefined,
  name: string,
  context: LegacyContext,
  budget: Budget,
) => Generator<void, Grants, void>;
