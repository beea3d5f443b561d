import { HubgateError } from '../kernel/error.ts';
import { UrlPattern } from './pattern/url-pattern.ts';
import { hasForbiddenCharacters, parseTopic, type Topic } from './topic.ts';

/** Longest matcher in bytes of UTF-8. */
export const MAX_MATCHER_BYTES = 4096;

/** A pattern counts in the cache once for each so many of its instructions. */
const INSTRUCTIONS_PER_ENTRY = 64;

export type MatchType = 'exact' | 'urlpattern';

/** A matcher as it is written, in a query or in a token. */
export interface MatcherSpec {
  readonly match: string;
  readonly matchType: MatchType;
}

/** A matcher ready to be asked. */
export type Matcher =
  | { readonly kind: 'any'; readonly spec: MatcherSpec }
  | { readonly kind: 'exact'; readonly spec: MatcherSpec }
  | { readonly kind: 'urlpattern'; readonly spec: MatcherSpec; readonly pattern: UrlPattern };

/** What a token may hold. A predicate comes from a 0.x token: no subscription is written like it. */
export type GrantMatcher =
  | Matcher
  | { readonly kind: 'predicate'; readonly spec: null; readonly test: (topic: string) => boolean };

/** A matcher of a subscription: one with words of its own. */
export type SubscriptionMatcher = Exclude<Matcher, { kind: 'predicate' }>;

/**
 * The only match-anything is `*`, whatever the type; a URL Pattern never covers what is no URL.
 *
 * @param base see `hubBase`
 * @param cache shares equal patterns; null compiles anew
 * @throws HubgateError `invalid-matcher-characters`, `pattern-too-long` (over 4096 bytes),
 *   `invalid-pattern`
 */
export function compileMatcher(
  spec: MatcherSpec,
  base: string,
  cache: MatcherCache | null,
): SubscriptionMatcher {
  const { match, matchType } = spec;
  if (hasForbiddenCharacters(match)) {
    throw new HubgateError(
      'invalid-matcher-characters',
      'topic matcher values must be valid UTF-8 without control characters',
    );
  }
  if (Buffer.byteLength(match) > MAX_MATCHER_BYTES) {
    throw new HubgateError('pattern-too-long', `pattern too long (max ${MAX_MATCHER_BYTES} bytes)`);
  }
  if (match === '*') return { kind: 'any', spec };
  if (matchType === 'exact') return { kind: 'exact', spec };
  const pattern = cache?.pattern(match, base) ?? new UrlPattern(match, base);
  return { kind: 'urlpattern', spec, pattern };
}

export function matches(matcher: GrantMatcher, topic: Topic): boolean {
  switch (matcher.kind) {
    case 'any':
      return true;
    case 'exact':
      return matcher.spec.match === topic.text;
    case 'urlpattern':
      return topic.url !== null && matcher.pattern.test(topic.url);
    case 'predicate':
      return matcher.test(topic.text);
  }
}

/**
 * Whether a grant's matcher speaks about a subscription's: it matches the subscription's text as a
 * topic, or is written the same, for a pattern need not match its own text.
 */
export function appliesTo(matcher: GrantMatcher, spec: MatcherSpec, base: string): boolean {
  if (matcher.spec?.match === spec.match && matcher.spec.matchType === spec.matchType) return true;
  return matches(matcher, parseTopic(spec.match, base));
}

/** The compiled patterns used last, bounded. */
export class MatcherCache {
  readonly #capacity: number;
  /** In the order of their last use. */
  readonly #patterns = new Map<string, UrlPattern>();
  #weight = 0;

  /** @param capacity entries, where a large pattern counts as several; 0 or less keeps none */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** @throws HubgateError `invalid-pattern` */
  pattern(text: string, base: string): UrlPattern {
    const key = `${base} ${text}`;
    const known = this.#patterns.get(key);
    if (known !== undefined) {
      this.#patterns.delete(key);
      this.#patterns.set(key, known);
      return known;
    }
    const pattern = new UrlPattern(text, base);
    this.#patterns.set(key, pattern);
    this.#weight += weightOf(pattern);
    for (const [oldest, { size }] of this.#patterns) {
      if (this.#weight <= this.#capacity) break;
      this.#patterns.delete(oldest);
      this.#weight -= weightOf({ size });
    }
    return pattern;
  }
}

function weightOf({ size }: { readonly size: number }): number {
  return 1 + Math.floor(size / INSTRUCTIONS_PER_ENTRY);
}
