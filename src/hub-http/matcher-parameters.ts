import { HubgateError } from '../kernel/error.ts';
import { type Budget, unlimitedBudget } from '../kernel/scheduler.ts';
import {
  compileMatcher,
  compileSelector,
  type MatcherSpec,
  sizeOf,
  type SubscriptionMatcher,
} from '../hub/matcher.ts';
import type { HubEndpoint } from './endpoint.ts';
import type { FormField } from './form.ts';
import { badRequest } from './refusal.ts';

const MAX_MATCHERS = 100;

const PARAMETERS = [
  ['match', 'exact'],
  ['match_exact', 'exact'],
  ['match_urlpattern', 'urlpattern'],
] as const;

/** The parameter of 0.x. */
const TOPIC = 'topic';
const ALL_PARAMETERS = [...PARAMETERS, [TOPIC, null] as const];

/** A matcher in a query; one of 0.x has no type. */
interface WrittenMatcher {
  readonly match: string;
  readonly matchType: MatcherSpec['matchType'] | null;
}

const INVALID_CHARACTERS = 'topic matcher values must be valid UTF-8 without control characters';

/**
 * Reads the matchers of a subscribe request: by parameter name, then in the order of the request. Patterns
 * are compiled in slices; an exact topic costs nothing.
 *
 * @throws RefusedRequest (or rejects with it) 400 with the name of the invalid parameter
 */
export function readMatchers(
  fields: readonly FormField[],
  endpoint: HubEndpoint,
): readonly SubscriptionMatcher[] | Promise<readonly SubscriptionMatcher[]> {
  const specs = parseSpecs(fields, endpoint.legacyTopics !== null);
  if (specs.every(({ matchType }) => matchType === 'exact')) {
    return specs.map((spec) => compile(spec, endpoint, unlimitedBudget()));
  }
  return endpoint.scheduler.compute((budget) => compileAll(specs, endpoint, budget));
}

function parseSpecs(fields: readonly FormField[], topics: boolean): WrittenMatcher[] {
  if (!topics && fields.some(({ name }) => name === TOPIC)) {
    throw badRequest(
      'the "topic" parameter belongs to protocol 0.x: write "match" for an exact topic or "match_urlpattern" for a URL Pattern',
    );
  }
  const unknown = fields.find(
    ({ name }) =>
      name.toLowerCase().startsWith('match') && !PARAMETERS.some(([known]) => known === name),
  );
  if (unknown !== undefined) {
    throw badRequest(`unknown topic matcher query parameter: "${unknown.name}"`);
  }
  const specs: WrittenMatcher[] = [];
  for (const [parameter, matchType] of ALL_PARAMETERS) {
    for (const { name, value: match } of fields) {
      if (name !== parameter) continue;
      if (specs.length === MAX_MATCHERS) {
        throw badRequest(`too many matchers (max ${MAX_MATCHERS})`);
      }
      if (match === null) throw badRequest(INVALID_CHARACTERS);
      specs.push({ match, matchType });
    }
  }
  if (specs.length === 0) throw badRequest('missing "match" subscription parameter');
  return specs;
}

function* compileAll(
  specs: readonly WrittenMatcher[],
  endpoint: HubEndpoint,
  budget: Budget,
): Generator<void, readonly SubscriptionMatcher[], void> {
  const { maxPatternSize } = endpoint;
  const matchers: SubscriptionMatcher[] = [];
  let size = 0;
  for (const spec of specs) {
    if (budget.isSpent) yield;
    const matcher = compile(spec, endpoint, budget);
    size += sizeOf(matcher);
    if (size > maxPatternSize) {
      throw badRequest(
        `the URL Patterns of one subscription are too large together (max_pattern_size ${maxPatternSize})`,
      );
    }
    matchers.push(matcher);
  }
  return matchers;
}

function compile(
  { match, matchType }: WrittenMatcher,
  { base, matcherCache, legacyTopics }: HubEndpoint,
  budget: Budget,
): SubscriptionMatcher {
  try {
    return matchType === null
      ? compileSelector(match, legacyTopics?.templates === true, budget)
      : compileMatcher({ match, matchType }, base, matcherCache, budget);
  } catch (error) {
    if (!(error instanceof HubgateError)) throw error;
    switch (error.code) {
      case 'invalid-matcher-characters':
        throw badRequest(INVALID_CHARACTERS);
      case 'pattern-too-long':
        throw badRequest('pattern too long (max 4096 bytes)');
      default:
        // The compiler's message may contain the whole pattern, which the client knows anyway.
        throw badRequest('invalid topic matcher pattern');
    }
  }
}
