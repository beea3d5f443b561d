import { SignJWT } from 'jose';
import type { JsonValue } from '../hub/grants.ts';
import type { MatcherSpec } from '../hub/matcher.ts';
import { readGiven } from '../config/program-data.ts';
import {
  type DataNode,
  list,
  object,
  optional,
  refuse,
  type Shape,
  withDefault,
} from '../config/shape.ts';
import { name, oneOf, secret, text } from '../config/shape-values.ts';
import { type KeyMaterial, SIGNING_ALGORITHMS, signingKey } from './key.ts';
import { randomUUID } from 'node:crypto';
import { parseDuration } from '../config/units.ts';
import { type Profile, profiles } from '../hub/profile.ts';
import { HubgateError } from '../kernel/error.ts';
import { Secret } from '../kernel/secret.ts';

/** The grants of a token. */
export interface RequestedGrants {
  readonly publish: readonly MatcherSpec[];
  readonly subscribe: readonly MatcherSpec[];
  /** Attached to the subscribe grants; undefined for none. */
  readonly payload?: JsonValue | undefined;
}

/** The contents of a token (RFC 9068). */
export interface MintRequest extends RequestedGrants {
  readonly key: { readonly algorithm: string; readonly material: KeyMaterial };
  /** Header `kid`. @default none */
  readonly keyId?: string | null | undefined;
  readonly issuer: string;
  readonly audience: string;
  /** `sub`. @default a new one */
  readonly subject?: string | undefined;
  /** `client_id`. @default the issuer */
  readonly clientId?: string | undefined;
  /** Milliseconds since the epoch. */
  readonly issuedAtMs: number;
  readonly expiresAtMs: number;
  /** `type` of the hub's authorization details. */
  readonly detailType: string;
}

export interface MintedToken {
  readonly token: string;
  readonly header: Readonly<Record<string, string>>;
  readonly claims: Readonly<Record<string, JsonValue>>;
}

/**
 * Signs an access token, as the library offers it. Matchers are not checked, because the hub refuses invalid ones.
 * See `signingKey`.
 *
 * @throws HubgateError `invalid-argument`, `invalid-key`
 */
export async function mintToken(request: MintRequest): Promise<MintedToken> {
  readGiven(request, mintRequest, 'invalid-argument');
  return issueToken(request);
}

/**
 * The same for requests of the gateway itself, which need no check.
 *
 * @throws HubgateError `invalid-key`
 */
export async function issueToken(request: MintRequest): Promise<MintedToken> {
  const { key, keyId = null } = request;
  const header = { alg: key.algorithm, typ: 'at+jwt', ...(keyId === null ? {} : { kid: keyId }) };
  const claims = {
    iss: request.issuer,
    aud: request.audience,
    sub: request.subject ?? newUrn(),
    client_id: request.clientId ?? request.issuer,
    iat: Math.floor(request.issuedAtMs / 1000),
    exp: Math.floor(request.expiresAtMs / 1000),
    jti: newUrn(),
    authorization_details: authorizationDetails(request, request.detailType),
  };
  const signer = new SignJWT(claims).setProtectedHeader(header);
  const token = await signer.sign(key.material).catch((error: unknown) => {
    throw new HubgateError('invalid-key', `the key does not fit ${key.algorithm}`, {
      cause: error,
    });
  });
  return { token, header, claims };
}

/** Data of a program that is only checked here, and used as it is. */
function onlyChecked(
  expected: string,
  isFit: (value: DataNode['value']) => boolean,
): Shape<unknown> {
  return {
    read: ({ value, ...at }) => (isFit(value) ? null : refuse({ value, ...at }, expected)),
    write: () => null,
    schema: () => ({}),
  };
}

/** Everything in it is looked at, so that a value that is no JSON is found. */
function isJson(value: DataNode['value']): boolean {
  if (value === null || typeof value !== 'object') return true;
  const inner = value instanceof Map ? [...value.values()].map(({ value: each }) => each) : value;
  return [...inner].every((each) => isJson(each.value));
}

const json = onlyChecked('JSON', isJson);
const time = onlyChecked('milliseconds since the epoch', Number.isFinite);
const timeToLive = onlyChecked('seconds above 0, or a duration like 10m', (value) =>
  ['number', 'string'].includes(typeof value),
);
const optionalText = optional(name('text'));

const matcherSpecs = list(object({ match: text('a topic or a pattern'), matchType: name('text') }));

const mintRequest = object({
  key: object({
    algorithm: oneOf(...SIGNING_ALGORITHMS),
    material: onlyChecked('a key', (value) => typeof value === 'object' && value !== null),
  }),
  keyId: optionalText,
  issuer: text('text'),
  audience: text('text'),
  subject: optionalText,
  clientId: optionalText,
  issuedAtMs: time,
  expiresAtMs: time,
  detailType: text('text'),
  publish: matcherSpecs,
  subscribe: matcherSpecs,
  payload: withDefault(json, null),
});

const urlPattern = object({ urlpattern: name('a URL Pattern') });
const grantedTopic: Shape<unknown> = {
  ...urlPattern,
  read: (node, reading) =>
    typeof node.value === 'string' ? node.value : urlPattern.read(node, reading),
};
const grantedTopics = list(grantedTopic);
const granted: Shape<unknown> = {
  ...grantedTopics,
  read: (node, reading) =>
    (Array.isArray(node.value) ? grantedTopics : grantedTopic).read(node, reading),
};

const signTokenOptions = object({
  iss: name('the id of an issuer'),
  aud: name('the URL of the hub'),
  key: secret,
  alg: optionalText,
  kid: optionalText,
  publish: withDefault(granted, []),
  subscribe: withDefault(granted, []),
  ttl: withDefault(timeToLive, '1h'),
  sub: optionalText,
  clientId: optionalText,
  payload: withDefault(json, null),
  profile: withDefault(oneOf('hub', 'mercure'), 'hub'),
  detailType: optionalText,
});

function newUrn(): string {
  return `urn:uuid:${randomUUID()}`;
}

/** Converts grants to the hub's entries of `authorization_details` (RFC 9396 §2). */
export function authorizationDetails(
  { publish, subscribe, payload }: RequestedGrants,
  detailType: string,
): JsonValue[] {
  const details: JsonValue[] = [];
  if (publish.length > 0) {
    details.push({ type: detailType, actions: ['publish'], topics: publish.map(topicOf) });
  }
  if (subscribe.length > 0) {
    details.push({
      type: detailType,
      actions: ['subscribe'],
      topics: subscribe.map(topicOf),
      ...(payload === undefined ? {} : { payload }),
    });
  }
  return details;
}

function topicOf({ match, matchType }: MatcherSpec): JsonValue {
  return matchType === 'exact' ? { match } : { match, match_type: matchType };
}

/** A topic, `*` for every topic, or a URL Pattern. */
export type GrantedTopic = string | { readonly urlpattern: string };

/** The contents of a token, with the names of its claims. */
export interface SignTokenOptions {
  /** Issuer: one that is in the hub's configuration. */
  readonly iss: string;
  /** Audience: the URL of the hub. */
  readonly aud: string;
  /** HMAC secret, or the PEM of a private key. A PEM key requires `alg`. */
  readonly key: string;
  /** @default "HS256" */
  readonly alg?: string;
  /** Id of the key, for a hub that gets its keys from a JWK Set. */
  readonly kid?: string;
  /** Topics on which publishing is allowed. */
  readonly publish?: GrantedTopic | readonly GrantedTopic[];
  /** Topics whose private updates may be read. */
  readonly subscribe?: GrantedTopic | readonly GrantedTopic[];
  /** Lifetime in seconds, or with a unit: `10m`. @default "1h" */
  readonly ttl?: number | string;
  /** Subject of the token. @default a random one */
  readonly sub?: string;
  /** Client that the token is issued to. @default `iss` */
  readonly clientId?: string;
  /** Visible to clients that may see the subscriptions. */
  readonly payload?: JsonValue;
  /** Profile of the protocol's names. @default "hub" */
  readonly profile?: Profile['name'];
  /** For a hub with its own `detail_type`. @default the profile's */
  readonly detailType?: string;
}

/**
 * Signs an access token for a hub (RFC 9068, RFC 9396), as an app does for its users.
 *
 * @throws HubgateError `token-without-grant`, `invalid-lifetime`, `invalid-argument`, and those of {@link signingKey}
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
  readGiven(options, signTokenOptions, 'invalid-argument');
  const publish = specsOf(options.publish);
  const subscribe = specsOf(options.subscribe);
  if (publish.length === 0 && subscribe.length === 0) {
    throw new HubgateError(
      'token-without-grant',
      'A token needs a grant: set publish or subscribe',
    );
  }
  const issuedAtMs = Date.now();
  const { token } = await issueToken({
    key: signingKey(new Secret(options.key), options.alg ?? null),
    keyId: options.kid,
    issuer: options.iss,
    audience: options.aud,
    subject: options.sub,
    clientId: options.clientId,
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

/** A thousand years; a later end is a number that not every reader of tokens can hold. */
const LONGEST_LIFETIME_MS = 1000 * 366 * 86_400_000;

function lifetimeMs(ttl: number | string): number {
  const ms = typeof ttl === 'number' ? ttl * 1000 : parseDuration(ttl);
  if (ms !== null && ms !== undefined && ms > 0 && ms <= LONGEST_LIFETIME_MS) return ms;
  throw new HubgateError('invalid-lifetime', `ttl ${ttl}: seconds above 0, or a duration like 10m`);
}
