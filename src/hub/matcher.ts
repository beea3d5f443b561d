import { HubgateError } from '../kernel/error.ts';
import { type Budget, unlimitedBudget } from '../kernel/scheduler.ts';
import { UriTemplate } from './pattern/uri-template.ts';
import { UrlPattern } from './pattern/url-pattern.ts';
import { hasForbiddenCharacters, type Topic } from './topic.ts';

/** Maximum length of a matcher, in bytes of UTF-8. */
export const MAX_MATCHER_BYTES = 4096;

/** A pattern counts as one cache entry per this many bytes: the default of 100,000 entries is 64 MB. */
const BYTES_PER_ENTRY = 640;

export type MatchType = 'exact' | 'urlpattern';

/** A matcher as written in a query or a token. */
export interface MatcherSpec {
  readonly match: string;
  readonly matchType: MatchType;
}

/** A compiled matcher, as subscriptions have them. */
export type SubscriptionMatcher =
  | { readonly kind: 'any'; readonly spec: MatcherSpec }
  | { readonly kind: 'exact'; readonly spec: MatcherSpec }
  | { readonly kind: 'urlpattern'; readonly spec: MatcherSpec; readonly pattern: UrlPattern }
  /** A text of 0.x: it matches itself, or the expansions of the template that it is. */
  | { readonly kind: 'template'; readonly spec: MatcherSpec; readonly template: UriTemplate };

/** Matchers in a token. Only 0.x tokens contain predicates; subscriptions cannot. */
export type GrantMatcher =
  | SubscriptionMatcher
  | { readonly kind: 'predicate'; readonly spec: null; readonly test: (topic: string) => boolean };

/**
 * Compiles a matcher. Only `*` matches everything, whatever the type. A URL Pattern never matches a topic
 * that is not a URL.
 *
 * @param base see `hubBase`
 * @param cache shares equal patterns; null compiles again
 * @param budget pays for compiling a pattern
 * @throws HubgateError `invalid-matcher-characters`, `pattern-too-long` (over 4096 bytes),
 *   `invalid-pattern`
 */
export function compileMatcher(
  spec: MatcherSpec,
  base: string,
  cache: MatcherCache | null,
  budget: Budget = unlimitedBudget(),
): SubscriptionMatcher {
  const { match, matchType } = spec;
  checkMatcherText(match);
  if (match === '*') return { kind: 'any', spec };
  if (matchType === 'exact') return { kind: 'exact', spec };
  const pattern = cache?.pattern(match, base, budget) ?? compilePattern(match, base, budget);
  return { kind: 'urlpattern', spec, pattern };
}

/**
 * Compiles a bare string of 0.x: `*`, a topic, or a URI Template if those are enabled. Its type is reported
 * as exact.
 *
 * @throws HubgateError `invalid-matcher-characters`, `pattern-too-long` (over 4096 bytes),
 *   `invalid-pattern`: a template that is too large
 */
export function compileSelector(
  match: string,
  templates: boolean,
  budget: Budget = unlimitedBudget(),
): SubscriptionMatcher {
  checkMatcherText(match);
  const spec = { match, matchType: 'exact' } as const;
  if (match === '*') return { kind: 'any', spec };
  const template = templates ? readTemplate(match, budget) : null;
  return template === null ? { kind: 'exact', spec } : { kind: 'template', spec, template };
}

/** A text that is not a template is a topic. */
function readTemplate(text: string, budget: Budget): UriTemplate | null {
  budget.spend(COMPILE_STEPS + text.length * COMPILE_STEPS_PER_CHARACTER);
  try {
    return new UriTemplate(text);
  } catch (error) {
    if (error instanceof HubgateError && error.code === 'not-a-template') return null;
    throw error;
  }
}

function checkMatcherText(match: string): void {
  if (hasForbiddenCharacters(match)) {
    throw new HubgateError(
      'invalid-matcher-characters',
      'topic matcher values must be valid UTF-8 without control characters',
    );
  }
  if (Buffer.byteLength(match) > MAX_MATCHER_BYTES) {
    throw new HubgateError('pattern-too-long', `pattern too long (max ${MAX_MATCHER_BYTES} bytes)`);
  }
}

/** Instructions of a matcher. */
export function sizeOf(matcher: GrantMatcher): number {
  if (matcher.kind === 'template') return matcher.template.size;
  return matcher.kind === 'urlpattern' ? matcher.pattern.size : 0;
}

/** The memory of what a matcher is compiled to, in bytes, at most. */
export function compiledBytes(matcher: GrantMatcher): number {
  if (matcher.kind === 'template') return matcher.template.bytes;
  return matcher.kind === 'urlpattern' ? matcher.pattern.bytes : 0;
}

/** Cost of comparing two texts, and of calling a predicate, in steps. */
const COMPARE_STEPS = 1;
const PREDICATE_STEPS = 500;

export function matches(
  matcher: GrantMatcher,
  topic: Topic,
  budget: Budget = unlimitedBudget(),
): boolean {
  budget.spend(COMPARE_STEPS);
  switch (matcher.kind) {
    case 'any':
      return true;
    case 'exact':
      return matcher.spec.match === topic.text;
    case 'urlpattern': {
      budget.spend(topic.urlSteps);
      const { origin } = matcher.pattern;
      if (topic.url === null || (origin !== null && origin !== topic.origin)) return false;
      return matcher.pattern.test(topic.url, budget);
    }
    case 'template':
      return matcher.spec.match === topic.text || matcher.template.test(topic.text, budget);
    case 'predicate':
      budget.spend(PREDICATE_STEPS);
      return matcher.test(topic.text);
  }
}

/**
 * Steps that the patterns of one stream may cost per update (about 3 ms, enough for any single test). The
 * stream's other patterns then do not match this update. Patterns of usual length cost some hundred steps,
 * and those whose literals the topic lacks cost less than ten.
 */
export const MAX_STREAM_STEPS = 300_000;

/** Cheaper tests, such as those of patterns whose literals the topic lacks, are not counted. */
const CHEAP_STEPS = 20;
/**
 * Tests of patterns of usual length cost less than this, and count a tenth, so that a stream with 100 of them does not miss an
 * update with many topics: at the usual 400 steps, 7,500 tests.
 */
const USUAL_STEPS = 500;
const USUAL_WEIGHT = 0.1;

/** What a stream has spent on one update. */
export interface Share {
  /** In steps; initially 0. */
  spent: number;
}

/**
 * Whether a matcher of a stream matches a topic, at the expense of that stream. Live delivery and replay both
 * ask this, so that a stream gets the same updates from either. Parsing the topic is free, because it is done
 * once for all streams.
 */
export function matchesWithin(
  share: Share,
  matcher: GrantMatcher,
  topic: Topic,
  budget: Budget,
): boolean {
  const costsNothing = matcher.kind === 'any' || matcher.kind === 'exact';
  if (share.spent >= MAX_STREAM_STEPS && !costsNothing) return false;
  const parsing = matcher.kind === 'urlpattern' ? topic.urlSteps : 0;
  const before = budget.left;
  const isMatch = matches(matcher, topic, budget);
  const steps = before - budget.left - parsing;
  if (steps >= CHEAP_STEPS) share.spent += steps < USUAL_STEPS ? steps * USUAL_WEIGHT : steps;
  return isMatch;
}

/** Progress of a check that runs in slices. */
export interface Progress extends Share {
  /** Pairs of matcher and topic that have been tried; initially 0. */
  tried: number;
}

/**
 * Whether one of the matchers matches one of the topics. null means that the budget is used up: call again
 * with the same progress.
 *
 * @param isLimited whether the matchers are those of a stream, which pays for them ({@link matchesWithin})
 */
export function anyMatches(
  matchers: readonly GrantMatcher[],
  topics: readonly Topic[],
  progress: Progress,
  budget: Budget,
  isLimited = false,
): boolean | null {
  const pairs = matchers.length * topics.length;
  for (; progress.tried < pairs; progress.tried += 1) {
    if (budget.isSpent) return null;
    // All matchers of one topic, then those of the next, as in live delivery.
    const topic = topics[Math.floor(progress.tried / matchers.length)];
    const matcher = matchers[progress.tried % matchers.length];
    if (matcher === undefined || topic === undefined) continue;
    const isMatch = isLimited
      ? matchesWithin(progress, matcher, topic, budget)
      : matches(matcher, topic, budget);
    if (isMatch) return true;
  }
  return false;
}

/**
 * Whether the matcher of a grant covers that of a subscription: it matches the text of the subscription as a
 * topic, or both have the same text. The latter is necessary because a pattern need not match its own text.
 */
export function appliesTo(
  matcher: GrantMatcher,
  spec: MatcherSpec,
  topic: Topic,
  budget: Budget,
): boolean {
  if (matcher.spec?.match === spec.match && matcher.spec.matchType === spec.matchType) return true;
  return matches(matcher, topic, budget);
}

/** A bounded cache of the most recently used compiled patterns. */
export class MatcherCache {
  readonly #capacity: number;
  /** In the order of last use. */
  readonly #patterns = new Map<string, UrlPattern>();
  #weight = 0;

  /**
   * @param capacity number of entries of {@link BYTES_PER_ENTRY}; 0 or less turns the cache off
   */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** @throws HubgateError `invalid-pattern` */
  pattern(text: string, base: string, budget: Budget): UrlPattern {
    const key = `${base} ${text}`;
    const known = this.#patterns.get(key);
    if (known !== undefined) {
      this.#patterns.delete(key);
      this.#patterns.set(key, known);
      return known;
    }
    const pattern = compilePattern(text, base, budget);
    this.#patterns.set(key, pattern);
    this.#weight += weightOf(pattern);
    for (const [oldest, dropped] of this.#patterns) {
      if (this.#weight <= this.#capacity) break;
      this.#patterns.delete(oldest);
      this.#weight -= weightOf(dropped);
    }
    return pattern;
  }
}

/** Cost of compiling a pattern, and of each of its characters, in steps. */
const COMPILE_STEPS = 5_000;
const COMPILE_STEPS_PER_CHARACTER = 100;

/** @throws HubgateError `invalid-pattern` */
function compilePattern(text: string, base: string, budget: Budget): UrlPattern {
  budget.spend(COMPILE_STEPS + text.length * COMPILE_STEPS_PER_CHARACTER);
  return new UrlPattern(text, base);
}

function weightOf({ bytes }: UrlPattern): number {
  return Math.ceil(bytes / BYTES_PER_ENTRY);
}
