import { hash } from 'node:crypto';
import { readLegacyClaim } from '#legacy-claim';
import type { LegacyForms } from '../config/config.ts';
import type { Grants } from '../hub/grants.ts';
import { compiledBytes } from '../hub/matcher.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Budget, Scheduler } from '../kernel/scheduler.ts';
import { authorizationDetails, type GrantContext } from './authorization-details.ts';
import { checkAudience, checkClaims, checkHeader, checkType } from './claim-checks.ts';
import { assertCheck, type Check } from './diagnosis.ts';
import {
  checkAlgorithm,
  checkRole,
  checkSignature,
  findIssuer,
  type IssuerKey,
  type Role,
  type TrustedIssuer,
  issuerKeyFor,
} from './issuer.ts';
import { MAX_TOKEN_BYTES, parseToken, type UnverifiedToken } from './unverified-token.ts';
import type { KeySet } from './key.ts';

export { type Diagnosis, InvalidTokenError } from './diagnosis.ts';
export { KEYS_CHECK, type Role, type TrustedIssuer } from './issuer.ts';

/** A token that has passed every check. */
export interface AccessToken {
  readonly grants: Grants;
  /** null: never expires; only possible for 0.x tokens. */
  readonly expiresAtMs: number | null;
  /** As the token spells it; empty for a 0.x token without one. */
  readonly issuer: string;
  readonly tokenId: string | null;
  /** One of {@link TokenVerifier.issuerKeys}. Not for printing. */
  readonly issuerKey: string;
  /** Whether a hub with 1.0 only would refuse it. */
  readonly legacy: boolean;
}

export interface TokenVerifierOptions extends GrantContext {
  readonly issuers: readonly TrustedIssuer[];
  readonly clock: Clock;
  /** Compiles the patterns of tokens. */
  readonly scheduler: Scheduler;
  /** Name of the claim of 0.x tokens to accept, if this build can read them; null refuses them. */
  readonly legacyClaim: string | null;
  readonly legacyForms: LegacyForms;
  /** Called whenever a token is accepted that a hub with 1.0 only would refuse. */
  readonly onLegacyToken?: () => void;
}

/** Decides which tokens are accepted, and what they allow. */
export interface TokenVerifier {
  /** Whether any issuer has a key for the role. */
  readonly roles: Readonly<Record<Role, boolean>>;
  /**
   * The keys of all issuers that can verify a token. If the key of a stream is missing after a reload, its
   * issuer or key was removed.
   */
  readonly issuerKeys: ReadonlySet<string>;
  /** Whether 0.x tokens are accepted: configured, and this build can read them. */
  readonly acceptsLegacy: boolean;
  /**
   * Verifies a token. For a token that was seen before, it returns the result without a promise.
   *
   * @param audience the hub's identity for this request; empty if there is none
   * @throws InvalidTokenError (or rejects with it)
   */
  verify(token: string, role: Role, audience: string): AccessToken | Promise<AccessToken>;
}

export function createTokenVerifier(options: TokenVerifierOptions): TokenVerifier {
  const { issuers, clock } = options;
  const verified = new VerifiedTokens<AccessToken>();

  const verifyNew = async (
    text: string,
    role: Role,
    audience: string,
    digest: string,
  ): Promise<AccessToken> => {
    const token = parseToken(text);
    const relaxed = acceptsLegacy(options);
    const legacy = isLegacy(token, options);
    assertCheck(checkReadable(token, options));
    for (const check of checkHeader(token, { relaxed })) assertCheck(check);
    const issuerKey = requireIssuerKey(issuers, token, role, relaxed);
    assertCheck(checkAlgorithm(token, issuerKey));
    // Keys may be removed while the signature is checked with them. If they are fetched for this token, it is
    // verified once more when it comes again.
    const { generation } = issuerKey.keys;
    assertCheck(await checkSignature(token, issuerKey));
    const rules = { audience, nowMs: clock.now(), relaxed, legacy };
    for (const check of checkClaims(token, rules)) assertCheck(check);
    const grants = await options.scheduler.compute((budget) =>
      readGrants(token, options, legacy, budget),
    );
    const strict = [
      checkType(token, false),
      findIssuer(issuers, token, false).check,
      checkAudience(token, audience, false),
    ];
    const accepted = {
      ...describe(token, grants, issuerKey),
      legacy: legacy || strict.some(({ passed }) => !passed),
    };
    const bytes = ENTRY_BYTES + text.length + matcherBytes(grants);
    verified.add(digest, accepted, bytes, issuerKey.keys, generation);
    if (accepted.legacy) options.onLegacyToken?.();
    return accepted;
  };

  return {
    roles: {
      publisher: issuers.some(({ publisher }) => publisher !== null),
      subscriber: issuers.some(({ subscriber }) => subscriber !== null),
    },
    issuerKeys: new Set(
      issuers.flatMap((issuer) =>
        (['publisher', 'subscriber'] as const).flatMap(
          (role) => issuerKeyFor(issuer, role)?.identity ?? [],
        ),
      ),
    ),
    acceptsLegacy: acceptsLegacy(options),
    verify(text, role, audience) {
      // Too long to be accepted, so no digest is computed.
      if (text.length > MAX_TOKEN_BYTES) return verifyNew(text, role, audience, '');
      const digest = hash('sha256', `${role} ${audience} ${text}`, 'base64url');
      const known = verified.get(digest, clock.now());
      if (known === undefined) return verifyNew(text, role, audience, digest);
      if (known.legacy) options.onLegacyToken?.();
      return known;
    },
  };
}

/** Whether a token is read as one of 0.x. With `authorization_details` it always counts as modern. */
export function isLegacy({ claims }: UnverifiedToken, options: LegacyOptions): boolean {
  return acceptsLegacy(options) && claims['authorization_details'] === undefined;
}

/** Whether this process reads 0.x tokens if a configuration enables them. */
export const readsLegacyTokens = readLegacyClaim !== null;

/** The fix for a process that cannot read 0.x tokens. */
export const LEGACY_FIX = 'start hubgate with NODE_OPTIONS=--conditions=deprecated_claim';

/**
 * Checks that this process can read the token. If 0.x tokens are enabled, the other checks do not apply to a
 * 0.x token that it cannot read.
 */
export function checkReadable(token: UnverifiedToken, { legacyClaim }: LegacyOptions): Check {
  const { claims } = token;
  const isModern = claims['authorization_details'] !== undefined || checkType(token, false).passed;
  const asked = legacyClaim !== null && claims[legacyClaim] !== undefined && !isModern;
  return {
    check: legacyClaim ?? 'claims',
    passed: readsLegacyTokens || !asked,
    expected: 'a process that reads 0.x tokens',
    found: 'a process that does not',
    fix: LEGACY_FIX,
  };
}

/**
 * Reads what a token allows; yields when the budget is used up.
 *
 * @throws InvalidTokenError
 */
export function* readGrants(
  { claims }: UnverifiedToken,
  options: GrantContext & LegacyOptions & Pick<TokenVerifierOptions, 'legacyForms'>,
  legacy: boolean,
  budget: Budget,
): Generator<void, Grants, void> {
  const { legacyClaim } = options;
  if (legacy && legacyClaim !== null && readLegacyClaim !== null) {
    return yield* readLegacyClaim(claims[legacyClaim], legacyClaim, options, budget);
  }
  return yield* authorizationDetails(claims['authorization_details'], options, budget);
}

type LegacyOptions = Pick<TokenVerifierOptions, 'legacyClaim'>;

/** Whether 0.x tokens are accepted. Then `typ`, `aud` and a lone `iss` are not checked in any token. */
export function acceptsLegacy({ legacyClaim }: LegacyOptions): boolean {
  return legacyClaim !== null && readLegacyClaim !== null;
}

function requireIssuerKey(
  issuers: readonly TrustedIssuer[],
  token: UnverifiedToken,
  role: Role,
  relaxed: boolean,
): IssuerKey {
  const { issuer, check } = findIssuer(issuers, token, relaxed);
  assertCheck(check);
  const issuerKey = issuer === null ? null : issuerKeyFor(issuer, role);
  if (issuer !== null) assertCheck(checkRole(issuerKey, issuer, role));
  if (issuerKey === null) throw new TypeError('a check that failed did not throw');
  return issuerKey;
}

function describe(
  token: UnverifiedToken,
  grants: Grants,
  issuerKey: IssuerKey,
): Omit<AccessToken, 'legacy'> {
  const { exp, iss, jti } = token.claims;
  return {
    grants,
    expiresAtMs: typeof exp === 'number' ? exp * 1000 : null,
    issuer: typeof iss === 'string' ? iss : '',
    tokenId: typeof jti === 'string' ? jti : null,
    issuerKey: issuerKey.identity,
  };
}

/** Memory of remembered tokens, at most: some ten thousand usual ones. Patterns that several tokens share count for each. */
const MAX_BYTES = 32 * 1024 * 1024;
/** Memory of an entry besides its token and what the matchers of the token are compiled to. */
const ENTRY_BYTES = 512;

function matcherBytes({ publish, subscribe }: Grants): number {
  const all = [publish, ...subscribe.map(({ matchers }) => matchers)].flat();
  return all.reduce((sum, matcher) => sum + compiledBytes(matcher), 0);
}

interface Entry<T> {
  readonly token: T;
  readonly bytes: number;
  readonly keys: KeySet;
  readonly generation: number;
  readonly expiresAtMs: number | null;
}

/**
 * Verified tokens by digest, so that accepting one again costs only a look-up. The digest is of the token, the
 * role and the audience. A check that depends on anything else, such as the client's address, has to run for
 * each request, not only when an entry is made.
 */
class VerifiedTokens<T extends { readonly expiresAtMs: number | null }> {
  /** In the order of their last use. */
  readonly #entries = new Map<string, Entry<T>>();
  #bytes = 0;

  /** The token, unless it has expired or the keys have changed since. */
  get(digest: string, nowMs: number): T | undefined {
    const entry = this.#entries.get(digest);
    if (entry === undefined) return undefined;
    this.#entries.delete(digest);
    const isExpired = entry.expiresAtMs !== null && nowMs >= entry.expiresAtMs;
    if (isExpired || entry.generation !== entry.keys.generation) {
      this.#bytes -= entry.bytes;
      return undefined;
    }
    this.#entries.set(digest, entry);
    return entry.token;
  }

  /** @param generation of the keys before the token was verified with them */
  add(digest: string, token: T, bytes: number, keys: KeySet, generation: number): void {
    const previous = this.#entries.get(digest);
    if (previous !== undefined) this.#bytes -= previous.bytes;
    this.#entries.delete(digest);
    this.#entries.set(digest, { token, bytes, keys, generation, expiresAtMs: token.expiresAtMs });
    this.#bytes += bytes;
    for (const [oldest, entry] of this.#entries) {
      if (this.#bytes <= MAX_BYTES) break;
      this.#entries.delete(oldest);
      this.#bytes -= entry.bytes;
    }
  }
}
