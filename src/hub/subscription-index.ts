import { addTo, deleteFrom } from '../kernel/collections.ts';
import type { Budget } from '../kernel/scheduler.ts';
import {
  matchesWithin,
  MAX_STREAM_STEPS,
  type Share,
  type SubscriptionMatcher,
} from './matcher.ts';
import type { Topic } from './topic.ts';
import type { UrlPattern } from './pattern/url-pattern.ts';
import type { Subscriber } from './subscriber.ts';

type PatternMatcher = Extract<SubscriptionMatcher, { kind: 'urlpattern' }>;

/** A matcher with all that have it, so that equal ones are tried once. */
interface SharedMatcher<Matcher extends SubscriptionMatcher> {
  readonly matcher: Matcher;
  readonly subscribers: Set<Subscriber>;
}

type PatternEntry = SharedMatcher<PatternMatcher>;

/** A part of the process that has to know which exact topics are followed. */
export interface FollowObserver {
  /** A topic has its first subscriber. */
  began(topic: string): void;
  /** A topic has lost its last one. */
  ended(topic: string): void;
}

/** Stands for the origin of patterns that match any origin. */
const ANY_ORIGIN = '*';
/** Cost of a look-up that finds nothing, in steps. */
const LOOK_UP_STEPS = 10;

/**
 * Finds the subscribers of a topic. An update costs the subscribers that it reaches and the patterns that
 * could match it, not all open streams. Exact topics are looked up. A pattern is tried only if the topic has
 * its origin and its path begins with the pattern's literal prefix.
 */
export class SubscriptionIndex {
  readonly #everything = new Set<Subscriber>();
  readonly #exact = new Map<string, Set<Subscriber>>();
  /** By the text of the pattern: equal patterns are tried once. */
  readonly #patterns = new Map<string, PatternEntry>();
  /** By origin and literal path prefix, then by text. */
  readonly #byPrefix = new Map<string, Map<string, PatternEntry>>();
  /** The number of prefixes of each length. */
  readonly #prefixLengths = new Map<number, number>();
  readonly #templates = new TemplateIndex();
  readonly #observers = new Set<FollowObserver>();

  add(subscriber: Subscriber): void {
    for (const matcher of subscriber.options.matchers) {
      switch (matcher.kind) {
        case 'any':
          this.#everything.add(subscriber);
          break;
        case 'exact':
          this.#addExact(matcher.spec.match, subscriber);
          break;
        case 'urlpattern':
          this.#patternEntry(matcher).subscribers.add(subscriber);
          break;
        case 'template':
          this.#templates.add(matcher, subscriber);
          break;
      }
    }
  }

  delete(subscriber: Subscriber): void {
    for (const matcher of subscriber.options.matchers) {
      switch (matcher.kind) {
        case 'any':
          this.#everything.delete(subscriber);
          break;
        case 'exact':
          this.#deleteExact(matcher.spec.match, subscriber);
          break;
        case 'urlpattern':
          this.#deletePattern(matcher, subscriber);
          break;
        case 'template':
          this.#templates.delete(matcher, subscriber);
          break;
      }
    }
  }

  /** The number of subscribers with an exact matcher for a topic. */
  countExact(topic: string): number {
    return this.#exact.get(topic)?.size ?? 0;
  }

  /** The exact topics with subscribers. They may change while the caller goes through them. */
  exactTopics(): Iterable<string> {
    return this.#exact.keys();
  }

  /** Notifies of changes of {@link exactTopics}. The returned function ends that. */
  observe(observer: FollowObserver): () => void {
    this.#observers.add(observer);
    return () => void this.#observers.delete(observer);
  }

  #addExact(topic: string, subscriber: Subscriber): void {
    const isFirst = !this.#exact.has(topic);
    addTo(this.#exact, topic, subscriber);
    if (isFirst) for (const observer of this.#observers) observer.began(topic);
  }

  #deleteExact(topic: string, subscriber: Subscriber): void {
    if (!this.#exact.has(topic)) return;
    deleteFrom(this.#exact, topic, subscriber);
    if (!this.#exact.has(topic)) for (const observer of this.#observers) observer.ended(topic);
  }

  /**
   * The sets of subscribers with a matcher for one of the topics. A subscriber may be in several sets. Yields
   * null whenever the budget is used up. Subscribers that arrive or leave in the meantime may be missing.
   */
  *select(topics: readonly Topic[], budget: Budget): Generator<ReadonlySet<Subscriber> | null> {
    const matchBudget = new MatchBudget();
    if (this.#everything.size > 0) yield this.#everything;
    for (const topic of topics) {
      budget.spend(LOOK_UP_STEPS);
      if (budget.isSpent) yield null;
      const exact = this.#exact.get(topic.text);
      if (exact !== undefined) yield exact;
      if (this.#patterns.size > 0) yield* this.#selectByPattern(topic, matchBudget, budget);
      if (this.#templates.size > 0) yield* this.#templates.select(topic, matchBudget, budget);
    }
  }

  *#selectByPattern(
    topic: Topic,
    matchBudget: MatchBudget,
    budget: Budget,
  ): Generator<ReadonlySet<Subscriber> | null> {
    budget.spend(topic.urlSteps);
    const { url, origin } = topic;
    if (url === null || origin === null) return;
    for (const length of this.#prefixLengths.keys()) {
      if (length > url.pathname.length) continue;
      budget.spend(2 * LOOK_UP_STEPS);
      const prefix = url.pathname.slice(0, length);
      for (const start of [origin, ANY_ORIGIN]) {
        const sharing = this.#byPrefix.get(indexKey(start, prefix));
        if (sharing === undefined) continue;
        for (const entry of sharing.values()) {
          if (budget.isSpent) yield null;
          if (matchBudget.matches(entry, topic, budget)) yield entry.subscribers;
        }
      }
      if (budget.isSpent) yield null;
    }
  }

  #patternEntry(matcher: PatternMatcher): PatternEntry {
    const text = matcher.spec.match;
    const present = this.#patterns.get(text);
    if (present !== undefined) return present;
    const entry: PatternEntry = { matcher, subscribers: new Set() };
    this.#patterns.set(text, entry);
    const key = keyOf(matcher.pattern);
    let sharing = this.#byPrefix.get(key);
    if (sharing === undefined) {
      sharing = new Map();
      this.#byPrefix.set(key, sharing);
      this.#countPrefix(matcher.pattern.pathPrefix.length, 1);
    }
    sharing.set(text, entry);
    return entry;
  }

  #deletePattern(matcher: PatternMatcher, subscriber: Subscriber): void {
    const text = matcher.spec.match;
    const entry = this.#patterns.get(text);
    if (entry === undefined) return;
    entry.subscribers.delete(subscriber);
    if (entry.subscribers.size > 0) return;
    this.#patterns.delete(text);
    const key = keyOf(entry.matcher.pattern);
    const sharing = this.#byPrefix.get(key);
    sharing?.delete(text);
    if (sharing?.size !== 0) return;
    this.#byPrefix.delete(key);
    this.#countPrefix(entry.matcher.pattern.pathPrefix.length, -1);
  }

  #countPrefix(length: number, by: 1 | -1): void {
    const count = (this.#prefixLengths.get(length) ?? 0) + by;
    if (count === 0) this.#prefixLengths.delete(length);
    else this.#prefixLengths.set(length, count);
  }
}

function keyOf({ origin, pathPrefix }: UrlPattern): string {
  return indexKey(origin ?? ANY_ORIGIN, pathPrefix);
}

function indexKey(origin: string, pathPrefix: string): string {
  return `${origin} ${pathPrefix}`;
}

type TemplateMatcher = Extract<SubscriptionMatcher, { kind: 'template' }>;

/** Cost of comparing a prefix, in steps. */
const PREFIX_STEPS = 10;

/** Subscribers with URI Templates of 0.x. Equal templates are tried once. */
class TemplateIndex {
  readonly #entries = new Map<string, SharedMatcher<TemplateMatcher>>();

  get size(): number {
    return this.#entries.size;
  }

  add(matcher: TemplateMatcher, subscriber: Subscriber): void {
    const { match } = matcher.spec;
    const present = this.#entries.get(match);
    if (present === undefined)
      this.#entries.set(match, { matcher, subscribers: new Set([subscriber]) });
    else present.subscribers.add(subscriber);
  }

  delete({ spec: { match } }: TemplateMatcher, subscriber: Subscriber): void {
    const entry = this.#entries.get(match);
    entry?.subscribers.delete(subscriber);
    if (entry?.subscribers.size === 0) this.#entries.delete(match);
  }

  /** The sets of subscribers whose template covers a topic; null whenever the budget is used up. */
  *select(
    topic: Topic,
    matchBudget: MatchBudget,
    budget: Budget,
  ): Generator<ReadonlySet<Subscriber> | null> {
    for (const entry of this.#entries.values()) {
      budget.spend(PREFIX_STEPS);
      if (budget.isSpent) yield null;
      if (!topic.text.startsWith(entry.matcher.template.prefix)) continue;
      if (matchBudget.matches(entry, topic, budget)) yield entry.subscribers;
    }
  }
}

/** Cost of a stream that cannot pay any more. */
const PAYER_STEPS = 5;

/**
 * What matching one update has cost each stream. A pattern that several streams have asked for is tried once, and
 * one of them pays for it. So a client with expensive patterns uses up its own share, and delays nobody else.
 */
class MatchBudget {
  readonly #shares = new Map<Subscriber, Share>();

  /** Whether a matcher covers a topic, at the expense of one of its subscribers; false if none has budget left. */
  matches(
    { matcher, subscribers }: SharedMatcher<SubscriptionMatcher>,
    topic: Topic,
    budget: Budget,
  ): boolean {
    for (const payer of subscribers) {
      const share = this.#shares.get(payer) ?? { spent: 0 };
      if (share.spent >= MAX_STREAM_STEPS) {
        budget.spend(PAYER_STEPS);
        continue;
      }
      const isMatch = matchesWithin(share, matcher, topic, budget);
      if (share.spent > 0) this.#shares.set(payer, share);
      return isMatch;
    }
    return false;
  }
}
