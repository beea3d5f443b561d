import {
  isCounterpart,
  JWKS_ALGORITHMS,
  type KeyMaterial,
  signingKey,
  staticKeySet,
} from '../auth/key.ts';
import { readAuthorizationDetails } from '../auth/authorization-details.ts';
import { authorizationDetails } from '../auth/mint.ts';
import { InvalidTokenError } from '../auth/verify.ts';
import type { HubConfig, IssuerConfig, KeySource, TokenMintConfig } from '../config/config.ts';
import { nearestName } from '../config/nearest.ts';
import type { Finding, Report } from '../config/problem.ts';
import { compileGrants } from '../discovery/grant-template.ts';
import { profiles } from '../hub/profile.ts';
import { hubBase } from '../hub/topic.ts';
import { HubgateError } from '../kernel/error.ts';
import { hubPath } from './hub-place.ts';

type Role = 'publisher' | 'subscriber';

interface SigningKey {
  readonly algorithm: string;
  readonly material: KeyMaterial;
}

/**
 * Whether the hub would accept what `token mint` makes. Its first user would find out otherwise,
 * by a 401 that does not say why.
 *
 * @param hub null for one elsewhere, of which nothing is known
 */
export function checkTokenMint(mint: TokenMintConfig, hub: HubConfig | null, report: Report): void {
  const key = readKey(mint, report);
  if (mint.ttlMs < 1000) {
    report(mint, error('short-lifetime', 'a token lives for at least a second'), {
      field: 'ttlMs',
    });
  }
  if (hub === null) return;
  const issuer = hub.issuers.find(({ id }) => id === mint.issuer);
  if (issuer === undefined) {
    report(mint, unknownIssuer(mint, hub), { field: 'issuer' });
  } else if (key !== null) {
    for (const role of rolesOf(mint, hub)) checkRole(mint, issuer, role, key, report);
  }
  checkGrants(mint, hub, report);
}

function readKey(mint: TokenMintConfig, report: Report): SigningKey | null {
  try {
    return signingKey(mint.key, mint.algorithm);
  } catch (thrown) {
    if (!(thrown instanceof HubgateError)) throw thrown;
    report(mint, error(thrown.code, `token mint: ${thrown.message}`), { field: 'key' });
    return null;
  }
}

function unknownIssuer({ issuer }: TokenMintConfig, { issuers }: HubConfig): Finding {
  const ids = issuers.map(({ id }) => id);
  const near = nearestName(issuer, ids);
  const message = `the hub trusts no issuer ${issuer.slice(0, 80)}, so it would refuse every token`;
  const hint =
    near === undefined ? `the hub knows ${ids.join(', ') || 'no issuer'}` : `did you mean ${near}?`;
  return error('mint-refused', message, hint);
}

/** The browser sends its cookie with every subscription, so subscribers' keys come into it always. */
function rolesOf({ publish, publishUrlPattern }: TokenMintConfig, hub: HubConfig): readonly Role[] {
  const verifiesSubscribers =
    hub.legacy.subscriber !== null || hub.issuers.some(({ subscriber }) => subscriber !== null);
  const publishes = publish.length + publishUrlPattern.length > 0;
  return [
    ...(verifiesSubscribers ? ['subscriber' as const] : []),
    ...(publishes ? ['publisher' as const] : []),
  ];
}

function checkRole(
  mint: TokenMintConfig,
  issuer: IssuerConfig,
  role: Role,
  key: SigningKey,
  report: Report,
): void {
  const source = issuer[role];
  const reason =
    source === null ? `the issuer has no ${role} key` : whyNotVerified(source, role, key);
  if (reason === null) return;
  const message = `the hub would refuse the tokens that are minted here: ${reason}`;
  const hint = `the key of token mint must be the counterpart of the one in issuer ${issuer.id} { ${role} { … } }`;
  report(mint, error('mint-refused', message, hint), source === null ? {} : { other: source });
}

function whyNotVerified(source: KeySource, role: Role, key: SigningKey): string | null {
  const { algorithm, material } = key;
  if (source.kind === 'jwks') {
    // The set itself is fetched later; what it can never verify is known now.
    const accepted = source.algorithms.length === 0 ? JWKS_ALGORITHMS : source.algorithms;
    return accepted.includes(algorithm) ? null : notAccepted(role, algorithm, accepted);
  }
  const keys = readKeys(source);
  if (keys === null) return null;
  if (!keys.algorithms.includes(algorithm)) return notAccepted(role, algorithm, keys.algorithms);
  const candidates = keys.find({ alg: algorithm, kid: null });
  if (candidates instanceof Promise) return null;
  return candidates.some((candidate) => isCounterpart(material, candidate))
    ? null
    : `its ${role} key is another one`;
}

/** null for a key that cannot be used: that is reported where it stands. */
function readKeys(source: Extract<KeySource, { kind: 'jwt' }>) {
  try {
    return staticKeySet(source);
  } catch (thrown) {
    if (thrown instanceof HubgateError) return null;
    throw thrown;
  }
}

function notAccepted(role: Role, algorithm: string, accepted: readonly string[]): string {
  return `it verifies ${role}s with ${accepted.join(', ')}, not with ${algorithm}`;
}

/** The grants as they are with some plain value in each placeholder. */
function checkGrants(mint: TokenMintConfig, hub: HubConfig, report: Report): void {
  const grants = compileGrants(mint)((template) =>
    template.replace(/\\\{|\{[A-Za-z_][^{}\s]*\}/g, (match) => (match === '\\{' ? '{' : 'x')),
  );
  if (typeof grants === 'string') return;
  const detailType = hub.detailType ?? profiles[hub.profile].detailType;
  const base = hubBase(hub.resourceIdentifier, hubPath(hub));
  try {
    const details = authorizationDetails(grants, detailType);
    readAuthorizationDetails(details, { detailType, base, cache: null });
  } catch (thrown) {
    if (!(thrown instanceof InvalidTokenError)) throw thrown;
    const { check, found } = thrown.diagnosis;
    const message = `the hub would refuse the tokens that are minted here: ${check}: ${found}`;
    report(mint, error('mint-refused', message));
  }
}

function error(code: string, message: string, hint?: string): Finding {
  return hint === undefined
    ? { severity: 'error', code, message }
    : { severity: 'error', code, message, hint };
}
