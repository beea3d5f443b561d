import { appliesTo, type GrantMatcher, type MatcherSpec, matches } from './matcher.ts';
import type { Topic } from './topic.ts';

export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [name: string]: JsonValue };

/** What a token allows. Reading and writing are granted apart. */
export interface Grants {
  readonly publish: readonly GrantMatcher[];
  /** In the order of the token: the first that applies gives the payload. */
  readonly subscribe: readonly SubscribeGrant[];
  /** Payload where no entry of `subscribe` applies; 0.x tokens have one. */
  readonly fallbackPayload?: JsonValue;
}

export interface SubscribeGrant {
  readonly matchers: readonly GrantMatcher[];
  readonly payload?: JsonValue;
}

export const NO_GRANTS: Grants = { publish: [], subscribe: [] };

/** Whether every topic of an update may be published. */
export function mayPublish(grants: Grants, topics: readonly Topic[]): boolean {
  return topics.every((topic) => grants.publish.some((matcher) => matches(matcher, topic)));
}

/** Whether a private update may be read: one of its topics suffices. */
export function mayReceive(grants: Grants, topics: readonly Topic[]): boolean {
  return grants.subscribe.some(({ matchers }) =>
    matchers.some((matcher) => topics.some((topic) => matches(matcher, topic))),
  );
}

/**
 * The payload of one subscription: that of the first entry that applies to its matcher, even when
 * it has none. null means no payload.
 */
export function payloadFor(grants: Grants, spec: MatcherSpec, base: string): JsonValue {
  const entry = grants.subscribe.find(({ matchers }) =>
    matchers.some((matcher) => appliesTo(matcher, spec, base)),
  );
  return (entry === undefined ? grants.fallbackPayload : entry.payload) ?? null;
}
