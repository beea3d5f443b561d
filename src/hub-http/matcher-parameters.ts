import { HubgateError } from '../kernel/error.ts';
import {
  compileMatcher,
  type MatcherCache,
  type MatcherSpec,
  type SubscriptionMatcher,
} from '../hub/matcher.ts';
import type { FormField } from './form.ts';
import { badRequest } from './refusal.ts';

const MAX_MATCHERS = 100;

const PARAMETERS = [
  ['match', 'exact'],
  ['match_exact', 'exact'],
  ['match_urlpattern', 'urlpattern'],
] as const;

/**
 * The matchers of a subscribe request: by parameter name, then in the order of the request.
 *
 * @throws Refusal 400 that says which parameter is wrong
 */
export function parseMatchers(
  fields: readonly FormField[],
  base: string,
  cache: MatcherCache,
): SubscriptionMatcher[] {
  if (fields.some(({ name }) => name === 'topic')) {
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
  const asked = PARAMETERS.flatMap(([parameter, matchType]) =>
    fields
      .filter(({ name }) => name === parameter)
      .map(({ value }) => ({ match: value, matchType })),
  );
  if (asked.length === 0) throw badRequest('missing "match" subscription parameter');
  if (asked.length > MAX_MATCHERS) throw badRequest(`too many matchers (max ${MAX_MATCHERS})`);
  return asked.map(({ match, matchType }) => {
    if (match === null) throw badRequest(INVALID_CHARACTERS);
    return compile({ match, matchType }, base, cache);
  });
}

const INVALID_CHARACTERS = 'topic matcher values must be valid UTF-8 without control characters';

function compile(spec: MatcherSpec, base: string, cache: MatcherCache): SubscriptionMatcher {
  try {
    return compileMatcher(spec, base, cache);
  } catch (error) {
    if (!(error instanceof HubgateError)) throw error;
    switch (error.code) {
      case 'invalid-matcher-characters':
        throw badRequest(INVALID_CHARACTERS);
      case 'pattern-too-long':
        throw badRequest('pattern too long (max 4096 bytes)');
      default:
        // The compiler's own words may quote the pattern at length; the client knows what it sent.
        throw badRequest('invalid topic matcher pattern');
    }
  }
}
