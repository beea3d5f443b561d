import { type Budget, unlimitedBudget } from '../kernel/scheduler.ts';
import {
  anyMatches,
  appliesTo,
  type GrantMatcher,
  type MatcherSpec,
  type Progress,
} from './matcher.ts';
import { parseTopic, type Topic } from './topic.ts';

export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [name: string]: JsonValue };

/** The grants of a token. Reading and publishing are granted separately. */
export interface Grants {
  readonly publish: readonly GrantMatcher[];
  /** In the order of the token: the payload comes from the first entry that applies. */
  readonly subscribe: readonly SubscribeGrant[];
  /** The payload if no entry of `subscribe` applies; only 0.x tokens have one. */
  readonly fallbackPayload?: JsonValue;
}

export interface SubscribeGrant {
  readonly matchers: readonly GrantMatcher[];
  readonly payload?: JsonValue;
}

export const NO_GRANTS: Grants = { publish: [], subscribe: [] };

/** Whether every topic of an update may be published. Yields when the budget is used up. */
export function* publishQuestion(
  grants: Grants,
  topics: readonly Topic[],
  budget: Budget,
): Generator<void, boolean, void> {
  for (const topic of topics) {
    const progress = { tried: 0, spent: 0 };
    let granted = anyMatches(grants.publish, [topic], progress, budget);
    while (granted === null) {
      yield;
      granted = anyMatches(grants.publish, [topic], progress, budget);
    }
    if (!granted) return false;
  }
  return true;
}

/** Checks in slices whether a private update may be read. One granted topic is enough. */
export class ReadQuestion {
  readonly #matchers: readonly GrantMatcher[];
  readonly #topics: readonly Topic[];
  readonly #progress: Progress = { tried: 0, spent: 0 };
  #answer: boolean | null = null;

  constructor(grants: Grants, topics: readonly Topic[]) {
    this.#matchers = readMatchers(grants);
    this.#topics = topics;
  }

  /** The answer; null if the budget is used up. Another call continues. */
  ask(budget: Budget): boolean | null {
    this.#answer ??= anyMatches(this.#matchers, this.#topics, this.#progress, budget);
    return this.#answer;
  }
}

/** All matchers that grant reading. */
export function readMatchers({ subscribe }: Grants): readonly GrantMatcher[] {
  const [only] = subscribe;
  if (subscribe.length === 1 && only !== undefined) return only.matchers;
  return subscribe.flatMap(({ matchers }) => matchers);
}

/** Like {@link ReadQuestion}, without pauses. */
export function mayReceive(grants: Grants, topics: readonly Topic[]): boolean {
  return new ReadQuestion(grants, topics).ask(unlimitedBudget()) === true;
}

/**
 * The payload of a subscription: that of the first entry that applies to its matcher, even if that entry has
 * none. null means no payload. Yields when the budget is used up.
 */
export function* payloadFor(
  grants: Grants,
  spec: MatcherSpec,
  base: string,
  budget: Budget,
): Generator<void, JsonValue, void> {
  const topic = parseTopic(spec.match, base);
  for (const { matchers, payload } of grants.subscribe) {
    for (const matcher of matchers) {
      if (budget.isSpent) yield;
      if (appliesTo(matcher, spec, topic, budget)) return payload ?? null;
    }
  }
  return grants.fallbackPayload ?? null;
}
