// The debugger explains a token with the hub's own code, bundled for browsers, so that a pasted token never
// leaves the browser. Everything it imports must therefore import neither `jose` nor Node, apart from
// `Buffer`, which `buffer.ts` replaces.

import {
  describeGranted,
  type GrantNames,
  readAuthorizationDetails,
} from '../auth/authorization-details.ts';
import { checkClaims, checkHeader } from '../auth/claim-checks.ts';
import { type Coverage, coverSubscription, coverTopic } from '../auth/coverage.ts';
import { attempt, type Check } from '../auth/diagnosis.ts';
import { parseToken, type UnverifiedToken } from '../auth/unverified-token.ts';
import { type Grants, readMatchers } from '../hub/grants.ts';
import { compileMatcher, type MatcherSpec } from '../hub/matcher.ts';
import type { Profile } from '../hub/profile.ts';
import { parseTopic } from '../hub/topic.ts';

/** The information about a token that is available without the keys of its issuer. */
export interface Explanation {
  readonly checks: readonly Check[];
  /** Lines about what it grants. */
  readonly granted: readonly string[];
  /** null if it is not a token. */
  readonly token: UnverifiedToken | null;
  /** null if they cannot be read. */
  readonly grants: Grants | null;
}

/** A matcher or topic of the page, and whether the token covers it. */
export interface Covered extends Coverage {
  readonly use: 'subscribe' | 'publish';
  readonly name: string;
}

/** The checks of `token inspect`, except for those of the issuer and the signature, which need its keys. */
export function explainToken(text: string, settings: DebuggerSettings, nowMs: number): Explanation {
  const shape = attempt('shape', 'a signed JWT', () => parseToken(text));
  const { value: token } = shape;
  if (token === null) return { checks: [shape.check], granted: [], token, grants: null };
  const relaxed = settings.compatible && settings.readsLegacy;
  const details = token.claims['authorization_details'];
  const isLegacy = relaxed && details === undefined;
  const grants = attempt('authorization_details', 'valid entries', () =>
    readAuthorizationDetails(details, { ...settings, cache: null }),
  );
  return {
    token,
    grants: isLegacy ? null : grants.value,
    granted: describeGranted(text, settings),
    checks: [
      shape.check,
      ...checkHeader(token, { relaxed }),
      ...checkClaims(token, { audience: settings.audience, nowMs, relaxed, legacy: isLegacy }),
      ...(isLegacy ? [] : [grants.check]),
    ],
  };
}

/** How far grants cover what the page would subscribe to and publish. */
export function coverPage(
  grants: Grants,
  page: { readonly matchers: readonly MatcherSpec[]; readonly topics: readonly string[] },
  base: string,
): readonly Covered[] {
  const readable = readMatchers(grants);
  const read = page.matchers.map((spec): Covered => {
    const name = spec.match;
    try {
      const matcher = compileMatcher(spec, base, null);
      return { use: 'subscribe', name, ...coverSubscription(readable, matcher, base) };
    } catch (error) {
      const because = error instanceof Error ? error.message : String(error);
      return { use: 'subscribe', name, verdict: 'none', because };
    }
  });
  const written = page.topics.map((name): Covered => {
    return { use: 'publish', name, ...coverTopic(grants.publish, parseTopic(name, base)) };
  });
  return [...read, ...written];
}

/** `HUB/debug/config.json`: what the page needs to know about its hub. Nothing in it is secret. */
export interface DebuggerSettings extends GrantNames, Pick<Profile, 'cookieName' | 'cursorHeader'> {
  /** Whether `HUB/debug/playground-token` issues a token. */
  readonly playground: boolean;
  readonly anonymous: boolean;
  /** Whether subscriptions are announced and can be requested. */
  readonly subscriptions: boolean;
  /** See `hubBase`. */
  readonly base: string;
  /** The required `aud` of a token. */
  readonly audience: string;
}
