// What a token must say about itself, apart from its issuer and signature. The hub, `token inspect` and the
// debugger's page use the same lists. Because the page runs them in a browser, nothing that this file imports
// may import `jose` or Node.

import { type Check, quote } from './diagnosis.ts';
import { checkCritical, stringOrAbsent, type UnverifiedToken } from './unverified-token.ts';

const TYPE = 'at+jwt';
const CLOCKS =
  'compare the clocks of the issuer and of this machine (hubgate allows no difference)';

/** What the checks depend on in addition to the token. */
export interface ClaimRules {
  /** The hub's identity for the request; empty if there is none. */
  readonly audience: string;
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
  /** Whether 0.x tokens are accepted; it relaxes checks of all tokens. */
  readonly relaxed: boolean;
  /** Whether this is a 0.x token. */
  readonly legacy: boolean;
}

/** The checks of the header, which come before the issuer's key is looked up. */
export function checkHeader(
  token: UnverifiedToken,
  { relaxed }: Pick<ClaimRules, 'relaxed'>,
): readonly Check[] {
  return [checkType(token, relaxed), checkCritical(token)];
}

/** The checks of the claims, which come after the signature. They hold for one audience at one time. */
export function checkClaims(
  token: UnverifiedToken,
  { audience, nowMs, relaxed, legacy }: ClaimRules,
): readonly Check[] {
  return [
    checkAudience(token, audience, relaxed),
    checkExpiry(token, nowMs, legacy),
    checkNotBefore(token, nowMs),
    checkClaimTypes(token),
  ];
}

/**
 * Only access tokens (RFC 9068 §2.1) are accepted, and not, for example, an ID token of the same issuer.
 *
 * @param relaxed for a hub of 0.x, whose tokens had no type of their own: the type is not checked
 */
export function checkType({ header }: UnverifiedToken, relaxed: boolean): Check {
  const { typ } = header;
  const type = typeof typ === 'string' ? typ.toLowerCase().replace(/^application\//, '') : null;
  return {
    check: 'typ',
    passed: relaxed || type === TYPE,
    expected: `"${TYPE}"`,
    found: quote(typ),
    fix: `set the header "typ": "${TYPE}" where the token is issued`,
  };
}

/**
 * A token is for one hub (RFC 7519 §4.1.3); the audience is compared byte for byte.
 *
 * @param relaxed for a hub of 0.x: any audience is accepted that has a type that the standard allows
 */
export function checkAudience(
  { claims }: UnverifiedToken,
  audience: string,
  relaxed: boolean,
): Check {
  const { aud } = claims;
  const audiences = typeof aud === 'string' ? [aud] : aud;
  const isList = Array.isArray(audiences) && audiences.every((entry) => typeof entry === 'string');
  const passed = relaxed ? isList || isAbsent(aud) : isList && audiences.includes(audience);
  return {
    check: 'aud',
    passed: audience !== '' && passed,
    expected:
      audience === '' ? 'a request from which the identity can be derived' : quote(audience),
    found: quote(aud),
    fix: 'issue the token for that audience, or set resource_identifier to the one it names',
  };
}

/** Checks `exp` without leeway. A 0.x token may have no expiry. */
function checkExpiry({ claims }: UnverifiedToken, nowMs: number, legacy: boolean): Check {
  const { exp } = claims;
  const passed = typeof exp === 'number' ? nowMs < exp * 1000 : legacy && exp === undefined;
  return {
    check: 'exp',
    passed,
    expected: `a time after ${describeTime(nowMs / 1000)}`,
    found: describeTime(exp),
    fix: exp === undefined ? 'issue the token with "exp"' : `get a new token, or ${CLOCKS}`,
  };
}

function checkNotBefore({ claims }: UnverifiedToken, nowMs: number): Check {
  const { nbf } = claims;
  return {
    check: 'nbf',
    passed: isAbsent(nbf) || (typeof nbf === 'number' && nowMs >= nbf * 1000),
    expected: `a time not after ${describeTime(nowMs / 1000)}, or none`,
    found: describeTime(nbf),
    fix: CLOCKS,
  };
}

/** Claims that are not used must still have the types of the standard (RFC 7519 §4.1), or be `null`. */
function checkClaimTypes({ claims }: UnverifiedToken): Check {
  const { iat, sub, jti } = claims;
  const isTime = isAbsent(iat) || typeof iat === 'number';
  const isName = isAbsent(sub) || typeof sub === 'string';
  const wrong = isTime
    ? [isName ? undefined : sub, jti].find((one) => stringOrAbsent(one) === undefined)
    : iat;
  return {
    check: 'claims',
    passed: wrong === undefined,
    expected: '"iat" a number, "sub" and "jti" strings',
    found: wrong === undefined ? 'claims with the right types' : quote(wrong),
    fix: 'correct the type of the claim where the token is issued',
  };
}

/** Many issuers write `null` for unknown values. */
function isAbsent(claim: unknown): boolean {
  return claim === undefined || claim === null;
}

function describeTime(seconds: unknown): string {
  if (typeof seconds !== 'number') return quote(seconds);
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? quote(seconds) : `${date.toISOString()} (${seconds})`;
}
