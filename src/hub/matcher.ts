import { HubgateError } from '../kernel/error.ts';
import { type Budget, unlimitedBudget } from '../kernel/scheduler.ts';
import { UriTemplate } from './pattern/uri-template.ts';
import { UrlPattern } from './pattern/url-pattern.ts';
import { hasForbiddenCharacters, type Topic } from './topic.ts';

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
  | { readonly kind: 'urlpattern'; readonly spec: MatcherSpec; readonly pattern: UrlPattern }
  /** A text of 0.x: itself, or an expansion of the template that it is. */
  | { readonly kind: 'template'; readonly spec: MatcherSpec; readonly template: UriTemplate };

/** What a token may hold. A predicate comes from a 0.x token: no subscription is written like it. */
export type GrantMatcher =
  | Matcher
  | { readonly kind: 'predicate'; readonly spec: null; readonly test: (topic: string) => boolean };

/** A matcher of a subscription: one with words of its own. */
export type SubscriptionMatcher = Exclude<Matcher, { kind: 'predicate' }>;

/**
 * The only match-anything is `*`, whatever the type; a URL Pattern never covers what is not a URL.
 *
 * @param base see `hubBase`
 * @param cache shares equal patterns; null compiles again
 * @param budget pays for a pattern that has to be compiled
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
 * The selector of 0.x that is a bare string: `*`, a topic, or a URI Template where those are read.
 * It is told as an exact matcher.
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

/** What is not a template is a topic. */
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

/** Instructions of a matcher: a measure of its memory. */
export function sizeOf(matcher: GrantMatcher): number {
  if (matcher.kind === 'template') return matcher.template.size;
  return matcher.kind === 'urlpattern' ? matcher.pattern.size : 0;
}

/** What comparing two texts costs, and asking a predicate, in steps. */
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
    case 'urlpattern':
      budget.spend(topic.urlSteps);
      return topic.url !== null && matcher.pattern.test(topic.url, budget);
    case 'template':
      return matcher.spec.match === topic.text || matcher.template.test(topic.text, budget);
    case 'predicate':
      budget.spend(PREDICATE_STEPS);
      return matcher.test(topic.text);
  }
}

/** How far a question has come that is asked in slices. */
export interface Progress {
  /** Pairs of matcher and topic that have been tried; 0 to begin with. */
  tried: number;
  /** Steps that they have cost; 0 to begin with. */
  spent: number;
}

/**
 * Whether one of the matchers matches one of the topics; null when nothing is left of the budget:
 * ask again with the same progress.
 *
 * @param mostSteps what all pairs together may cost; beyond it nothing matches
 */
export function anyMatches(
  matchers: readonly GrantMatcher[],
  topics: readonly Topic[],
  progress: Progress,
  budget: Budget,
  mostSteps = Number.POSITIVE_INFINITY,
): boolean | null {
  const pairs = matchers.length * topics.length;
  for (; progress.tried < pairs; progress.tried += 1) {
    if (progress.spent >= mostSteps) return false;
    if (budget.isSpent) return null;
    const matcher = matchers[Math.floor(progress.tried / topics.length)];
    const topic = topics[progress.tried % topics.length];
    if (matcher === undefined || topic === undefined) continue;
    const before = budget.left;
    if (matches(matcher, topic, budget)) return true;
    progress.spent += before - budget.left;
  }
  return false;
}

/**
 * Whether a grant's matcher speaks about a subscription's: it matches the subscription's text as a
 * topic, or is written the same, for a pattern need not match its own text.
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
    for (const [oldest, { size }] of this.#patterns) {
      if (this.#weight <= this.#capacity) break;
      this.#patterns.delete(oldest);
      this.#weight -= weightOf({ size });
    }
    return pattern;
  }
}

/** What compiling a pattern costs, and each of its characters, in steps. */
const COMPILE_STEPS = 5_000;
const COMPILE_STEPS_PER_CHARACTER = 100;

/** @throws HubgateError `invalid-pattern` */
function compilePattern(text: string, base: string, budget: Budget): UrlPattern {
  budget.spend(COMPILE_STEPS + text.length * COMPILE_STEPS_PER_CHARACTER);
  return new UrlPattern(text, base);
}

function weightOf({ size }: { readonly size: number }): number {
  return 1 + Math.floor(size / INSTRUCTIONS_PER_ENTRY);
}
