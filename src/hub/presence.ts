import type { Budget } from '../kernel/scheduler.ts';
import { type JsonValue, payloadFor, readMatchers } from './grants.ts';
import { type GrantMatcher, matches } from './matcher.ts';
import type { Profile } from './profile.ts';
import type { Subscriber, SubscriberOptions } from './subscriber.ts';
import { parseTopic } from './topic.ts';
import type { Update } from './update.ts';

/** An active subscription, as the subscription API and the subscription events describe it. */
export interface SubscriptionRecord {
  /** `HUB/subscriptions/{match_type}/{match}/{subscriber}`, each segment percent-encoded. */
  readonly id: string;
  readonly type: 'subscription';
  readonly subscriber: string;
  readonly match: string;
  readonly match_type: 'exact' | 'urlpattern';
  readonly active: boolean;
  readonly payload?: JsonValue;
  /** An entry of a process itself (`election.ts`), which is not a subscription and which nobody is shown. */
  readonly internal?: true;
}

/** Whether an entry of the board is for those who ask for subscriptions. */
export function isSubscription({ internal }: SubscriptionRecord): boolean {
  return internal !== true;
}

export interface PresenceNames {
  readonly profile: Profile;
  readonly hubPath: string;
  readonly base: string;
}

/** Cost of announcing a record, and of each character of its matcher, in steps. */
const RECORD_STEPS = 1_000;
const CHARACTER_STEPS = 2;

/** The subscriptions of a subscriber, in the order of its matchers. Yields when the budget is used up. */
export function* subscriptionRecords(
  subscriber: Subscriber,
  names: PresenceNames,
  budget: Budget,
): Generator<void, readonly SubscriptionRecord[], void> {
  const records: SubscriptionRecord[] = [];
  for (const { spec } of subscriber.options.matchers) {
    if (budget.isSpent) yield;
    budget.spend(RECORD_STEPS + CHARACTER_STEPS * spec.match.length);
    const payload = yield* payloadFor(subscriber.options.grants, spec, names.base, budget);
    records.push({
      id: subscriptionPath(names.hubPath, spec.matchType, spec.match, subscriber.id),
      type: 'subscription',
      subscriber: subscriber.id,
      match: spec.match,
      match_type: spec.matchType,
      active: true,
      ...(payload === null ? {} : { payload }),
    });
  }
  return records;
}

/** The event for a record: a private update of the reserved type. */
export function subscriptionEvent(
  record: SubscriptionRecord,
  names: PresenceNames,
  id: string,
): Update {
  return {
    id,
    topics: [record.id],
    data: JSON.stringify(record),
    private: true,
    type: names.profile.reservedType,
    retry: null,
    presence: true,
  };
}

/**
 * Whether a subscriber may receive presence events, that is, whether both its matchers and its grants can
 * match their topics. If this is not certain, the answer is yes.
 */
export function mayReadPresence(
  { grants, matchers }: Pick<SubscriberOptions, 'grants' | 'matchers'>,
  { hubPath, base }: PresenceNames,
): boolean {
  const some = parseTopic(subscriptionPath(hubPath, 'exact', 'match', 'subscriber'), base);
  const reaches = (matcher: GrantMatcher): boolean =>
    matcher.spec === null || matcher.spec.match.includes('subscriptions') || matches(matcher, some);
  return readMatchers(grants).some(reaches) && matchers.some(reaches);
}

function subscriptionPath(hubPath: string, ...segments: readonly string[]): string {
  return [`${hubPath}/subscriptions`, ...segments.map(encodeSegment)].join('/');
}

/**
 * Percent-encodes everything except the unreserved characters of RFC 3986 §2.3, with upper-case hexadecimal
 * digits.
 */
function encodeSegment(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
