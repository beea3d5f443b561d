import { hash } from 'node:crypto';
import { compactVerify } from 'jose';
import { type Check, quote } from './diagnosis.ts';
import { type KeyMaterial, type KeySet, shortRsaKey } from './key.ts';
import { stringOrAbsent, type UnverifiedToken } from './unverified-token.ts';

export type Role = 'publisher' | 'subscriber';

/** An issuer that the hub trusts, with its keys for each role. Keys are never shared between issuers. */
export interface TrustedIssuer {
  /** Compared byte for byte with `iss`; null for the issuer of the 0.x directives, which has no id. */
  readonly id: string | null;
  readonly publisher: KeySet | null;
  readonly subscriber: KeySet | null;
  /** Whether it is the gateway's own issuer, whose tokens always name it. */
  readonly own?: true;
}

/** The keys of an issuer for tokens with a role. */
export interface IssuerKey {
  readonly keys: KeySet;
  /** Equal as long as this issuer, role and key configuration stay the same. Not for printing. */
  readonly identity: string;
}

/** The keys with which an issuer signs tokens for a role; null if it signs none. */
export function issuerKeyFor(issuer: TrustedIssuer, role: Role): IssuerKey | null {
  const keys = issuer[role];
  if (keys === null) return null;
  const identity = hash('sha256', JSON.stringify([issuer.id, role, keys.identity]));
  return { keys, identity };
}

/**
 * The issuer that a token names. Tokens of 0.x name none, or one that is not configured. They belong to the
 * issuer of the 0.x directives, or to the only one if there is just one.
 *
 * @param relaxed whether the hub accepts such tokens
 */
export function findIssuer(
  issuers: readonly TrustedIssuer[],
  { claims }: UnverifiedToken,
  relaxed: boolean,
): { readonly issuer: TrustedIssuer | null; readonly check: Check } {
  const { iss } = claims;
  const named = issuers.find(({ id }) => id !== null && id === iss);
  const nameless = issuers.find(({ id }) => id === null) ?? onlyDeclared(issuers);
  const mayBeNameless = relaxed && stringOrAbsent(iss) !== undefined;
  const issuer = named ?? (mayBeNameless ? nameless : null) ?? null;
  const check: Check = {
    check: 'iss',
    passed: issuer !== null,
    expected:
      issuers.flatMap(({ id }) => (id === null ? [] : [quote(id)])).join(' or ') ||
      'an issuer of the hub (the hub has none)',
    found: quote(iss),
    fix: 'declare the issuer in the Hubfile exactly as the token spells it, or correct "iss"',
  };
  return { issuer, check };
}

function onlyDeclared(issuers: readonly TrustedIssuer[]): TrustedIssuer | null {
  const declared = issuers.filter(({ own }) => own !== true);
  return declared.length === 1 ? (declared[0] ?? null) : null;
}

export function checkRole(issuerKey: IssuerKey | null, issuer: TrustedIssuer, role: Role): Check {
  return {
    check: 'role',
    passed: issuerKey !== null,
    expected: `an issuer with a ${role} key`,
    found: quote(issuer.id ?? undefined),
    fix: `add ${role} { jwt … } to this issuer, or use a token of another issuer`,
  };
}

/** The configuration chooses the algorithm, never the token (RFC 8725 §3.1). */
export function checkAlgorithm({ header }: UnverifiedToken, { keys }: IssuerKey): Check {
  const { alg } = header;
  return {
    check: 'alg',
    passed: typeof alg === 'string' && keys.algorithms.includes(alg),
    expected: keys.algorithms.join(' or '),
    found: quote(alg),
    fix: 'sign with that algorithm, or configure the algorithm of the key',
  };
}

/**
 * Whether one of the issuer's keys for the role has created the signature. Call it after {@link
 * checkAlgorithm}.
 */
export async function checkSignature(token: UnverifiedToken, { keys }: IssuerKey): Promise<Check> {
  const { alg, kid } = token.header;
  const hint = stringOrAbsent(kid);
  const candidates =
    typeof alg === 'string' && hint !== undefined ? await keys.find({ alg, kid: hint }) : [];
  if (candidates === null) return unknownKeys('too many tokens wait for it');
  if (candidates.length === 0 && keys.fault !== null) return unknownKeys(keys.fault);
  const passed = typeof alg === 'string' && (await isSignedByOne(token.text, candidates, alg));
  // A token that names no key may be signed with one that the issuer has added.
  if (!passed && hint === null && keys.fault !== null) return unknownKeys(keys.fault);
  const expected = "a signature of one of the issuer's keys for this role";
  const short = passed ? undefined : candidates.map(shortRsaKey).find((one) => one !== null);
  if (typeof short === 'string') {
    const fix = 'let the issuer sign with a longer key, or with ES256';
    return { check: 'signature', passed, expected, found: short, fix };
  }
  return {
    check: 'signature',
    passed,
    expected,
    found: describeSignature(passed, candidates.length, kid),
    fix:
      candidates.length > 0
        ? 'check that the key matches the signing key, and that it is configured for this role'
        : 'check that the issuer publishes the signing key with this "kid" and algorithm',
  };
}

/** The name of the check that fails when the keys are not known, so that the token may be valid. */
export const KEYS_CHECK = 'keys';

function unknownKeys(fault: string): Check {
  return {
    check: KEYS_CHECK,
    passed: false,
    expected: "the issuer's JWK Set",
    found: fault,
    fix: 'check jwks_uri, and whether this machine can reach it; the hub tries again',
  };
}

function describeSignature(passed: boolean, candidates: number, kid: unknown): string {
  const named = kid === undefined ? 'no key by "kid"' : `the "kid" ${quote(kid)}`;
  if (passed) return 'a signature by its key';
  return candidates > 0
    ? `no configured key (${candidates} tried) matches the signature; the token names ${named}`
    : `the issuer has no key; the token names ${named}`;
}

async function isSignedByOne(
  token: string,
  keys: readonly KeyMaterial[],
  algorithm: string,
): Promise<boolean> {
  for (const key of keys) {
    try {
      await compactVerify(token, key, { algorithms: [algorithm] });
      return true;
    } catch {
      // Whatever the reason, this key does not verify the token; the next one may.
    }
  }
  return false;
}
