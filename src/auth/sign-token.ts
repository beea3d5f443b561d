import { randomUUID } from 'node:crypto';
import { parseDuration } from '../config/units.ts';
import type { JsonValue } from '../hub/grants.ts';
import type { MatcherSpec } from '../hub/matcher.ts';
import { type Profile, profiles } from '../hub/profile.ts';
import { HubgateError } from '../kernel/error.ts';
import { Secret } from '../kernel/secret.ts';
import { signingKey } from './key.ts';
import { mintToken } from './mint.ts';

/** A topic as it is, `*` for every one, or a URL Pattern. */
export type GrantedTopic = string | { readonly urlpattern: string };

/** What a token is to say, in the words of its claims. */
export interface SignTokenOptions {
  /** Issuer: one that the hub's configuration names. */
  readonly iss: string;
  /** Audience: the URL of the hub. */
  readonly aud: string;
  /** HMAC secret, or the PEM of a private key; then `alg` says which algorithm. */
  readonly key: string;
  /** @default "HS256" */
  readonly alg?: string;
  /** Id of the key, for a hub that takes its keys from a JWK Set. */
  readonly kid?: string;
  /** Topics that may be published on. */
  readonly publish?: GrantedTopic | readonly GrantedTopic[];
  /** Topics whose private updates may be read. */
  readonly subscribe?: GrantedTopic | readonly GrantedTopic[];
  /** Lifetime in seconds, or with a unit: `10m`. @default "1h" */
  readonly ttl?: number | string;
  /** Whom it is about. @default a random one */
  readonly sub?: string;
  /** Whom it was issued to. @default `iss` */
  readonly clientId?: string;
  /** Shown to whoever may see the subscriptions. */
  readonly payload?: JsonValue;
  /** Names of the protocol. @default "hub" */
  readonly profile?: Profile['name'];
  /** For a hub with a `detail_type` of its own. @default the profile's */
  readonly detailType?: string;
}

/**
 * Signs an access token for a hub (RFC 9068, RFC 9396), as an app does for its users.
 *
 * @throws HubgateError `token-without-grant`, `invalid-lifetime`, and those of {@link signingKey}
 * @example
 * const token = await signToken({
 *   iss: 'https://example.com',
 *   aud: 'https://example.com/.well-known/hub',
 *   key: process.env.HUB_SUBSCRIBER_JWT_KEY,
 *   subscribe: { urlpattern: 'https://example.com/users/42/*' },
 *   ttl: '10m',
 * });
 */
export async function signToken(options: SignTokenOptions): Promise<string> {
  const publish = specsOf(options.publish);
  const subscribe = specsOf(options.subscribe);
  if (publish.length === 0 && subscribe.length === 0) {
    throw new HubgateError(
      'token-without-grant',
      'A token without a grant is of no use: give publish or subscribe',
    );
  }
  const issuedAtMs = Date.now();
  const { token } = await mintToken({
    key: signingKey(new Secret(options.key), options.alg ?? null),
    keyId: options.kid ?? null,
    issuer: options.iss,
    audience: options.aud,
    subject: options.sub ?? null,
    clientId: options.clientId ?? null,
    newId: () => `urn:uuid:${randomUUID()}`,
    issuedAtMs,
    expiresAtMs: issuedAtMs + lifetimeMs(options.ttl ?? '1h'),
    detailType: options.detailType ?? profiles[options.profile ?? 'hub'].detailType,
    publish,
    subscribe,
    payload: options.payload,
  });
  return token;
}

function specsOf(topics: SignTokenOptions['publish'] = []): readonly MatcherSpec[] {
  return [topics]
    .flat()
    .map((topic) =>
      typeof topic === 'string'
        ? { match: topic, matchType: 'exact' }
        : { match: topic.urlpattern, matchType: 'urlpattern' },
    );
}

function lifetimeMs(ttl: number | string): number {
  const ms = typeof ttl === 'number' ? ttl * 1000 : parseDuration(ttl);
  if (ms !== null && ms !== undefined && ms > 0 && Number.isFinite(ms)) return ms;
  throw new HubgateError('invalid-lifetime', `ttl ${ttl}: seconds above 0, or a duration like 10m`);
}
