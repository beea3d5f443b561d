import { payloadFor, type JsonValue } from './grants.ts';
import type { Profile } from './profile.ts';
import type { Subscriber } from './subscriber.ts';
import type { Update } from './update.ts';

/** An active subscription as the subscription API and the subscription events tell it. */
export interface SubscriptionRecord {
  /** `HUB/subscriptions/{match_type}/{match}/{subscriber}`, each segment percent-encoded. */
  readonly id: string;
  readonly type: 'subscription';
  readonly subscriber: string;
  readonly match: string;
  readonly match_type: 'exact' | 'urlpattern';
  readonly active: boolean;
  readonly payload?: JsonValue;
}

export interface PresenceNames {
  readonly profile: Profile;
  readonly hubPath: string;
  readonly base: string;
}

/** The subscriptions of a subscriber, in the order of its matchers. */
export function subscriptionRecords(
  subscriber: Subscriber,
  names: PresenceNames,
  active: boolean,
): SubscriptionRecord[] {
  return subscriber.options.matchers.map(({ spec }) => {
    const payload = payloadFor(subscriber.options.grants, spec, names.base);
    return {
      id: subscriptionPath(names.hubPath, spec.matchType, spec.match, subscriber.id),
      type: 'subscription',
      subscriber: subscriber.id,
      match: spec.match,
      match_type: spec.matchType,
      active,
      ...(payload === null ? {} : { payload }),
    };
  });
}

/** The event that tells presence listeners of a record: a private update of the reserved type. */
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
  };
}

export function subscriptionPath(hubPath: string, ...segments: readonly string[]): string {
  return [`${hubPath}/subscriptions`, ...segments.map(encodeSegment)].join('/');
}

/** Everything but the unreserved characters of RFC 3986 §2.3, upper-case hexadecimal. */
function encodeSegment(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
