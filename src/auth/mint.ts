import { SignJWT } from 'jose';
import type { JsonValue } from '../hub/grants.ts';
import type { MatcherSpec } from '../hub/matcher.ts';
import type { KeyMaterial } from './key.ts';

/** What a token allows. */
export interface RequestedGrants {
  readonly publish: readonly MatcherSpec[];
  readonly subscribe: readonly MatcherSpec[];
  /** Goes with the subscribe grants; undefined for none. */
  readonly payload?: JsonValue | undefined;
}

/** What a token is to say (RFC 9068). */
export interface MintRequest extends RequestedGrants {
  readonly key: { readonly algorithm: string; readonly material: KeyMaterial };
  /** Header `kid`; null for none. */
  readonly keyId: string | null;
  readonly issuer: string;
  readonly audience: string;
  /** `sub`; null makes one up. */
  readonly subject: string | null;
  /** `client_id`; null means the issuer. */
  readonly clientId: string | null;
  /** A fresh URI at each call, for `jti` and `sub`. */
  readonly newId: () => string;
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

/** Signs an access token. Matchers are not checked: the hub refuses bad ones. See `signingKey`. */
export async function mintToken(request: MintRequest): Promise<MintedToken> {
  const { key, keyId } = request;
  const header = { alg: key.algorithm, typ: 'at+jwt', ...(keyId === null ? {} : { kid: keyId }) };
  const claims = {
    iss: request.issuer,
    aud: request.audience,
    sub: request.subject ?? request.newId(),
    client_id: request.clientId ?? request.issuer,
    iat: Math.floor(request.issuedAtMs / 1000),
    exp: Math.floor(request.expiresAtMs / 1000),
    jti: request.newId(),
    authorization_details: authorizationDetails(request, request.detailType),
  };
  const token = await new SignJWT(claims).setProtectedHeader(header).sign(key.material);
  return { token, header, claims };
}

/** Grants as the hub's entries of `authorization_details` (RFC 9396 §2). */
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
