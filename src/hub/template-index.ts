import type { Budget } from '../kernel/scheduler.ts';
import { matches, type SubscriptionMatcher } from './matcher.ts';
import type { Subscriber } from './subscriber.ts';
import type { Topic } from './topic.ts';

export type TemplateMatcher = Extract<SubscriptionMatcher, { kind: 'template' }>;

interface TemplateEntry {
  readonly matcher: TemplateMatcher;
  readonly subscribers: Set<Subscriber>;
}

/** Cost of comparing a prefix, in steps. */
const PREFIX_STEPS = 10;

/** Subscribers with URI Templates of 0.x. Equal templates are tried once. */
export class TemplateIndex {
  readonly #entries = new Map<string, TemplateEntry>();

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
    for (const { matcher, subscribers } of this.#entries.values()) {
      budget.spend(PREFIX_STEPS);
      if (budget.isSpent) yield null;
      if (!topic.text.startsWith(matcher.template.prefix)) continue;
      const payer = matchBudget.payerAmong(subscribers);
      if (payer === null) continue;
      const before = budget.left;
      const isMatch = matches(matcher, topic, budget);
      matchBudget.pay(payer, before - budget.left);
      if (isMatch) yield subscribers;
    }
  }
}

/**
 * Steps that the patterns of one stream may cost per update (about 3 ms, enough for any single test). The
 * stream's other patterns then do not match this update. Patterns of usual length cost some hundred steps,
 * and those whose literals the topic lacks cost less than ten.
 */
export const MAX_STREAM_STEPS = 300_000;

/** Cheaper tests are not counted. */
const CHEAP_STEPS = 500;

/**
 * What matching one update has cost each stream. A pattern that several streams have asked for is tried once, and
 * one of them pays for it. So a client with expensive patterns uses up its own share, and delays nobody else.
 */
export class MatchBudget {
  readonly #spent = new Map<Subscriber, number>();

  /** One of the subscribers with budget left; null if there is none. */
  payerAmong(subscribers: ReadonlySet<Subscriber>): Subscriber | null {
    for (const subscriber of subscribers) {
      if ((this.#spent.get(subscriber) ?? 0) < MAX_STREAM_STEPS) return subscriber;
    }
    return null;
  }

  pay(payer: Subscriber, steps: number): void {
    if (steps < CHEAP_STEPS) return;
    this.#spent.set(payer, (this.#spent.get(payer) ?? 0) + steps);
  }
}
