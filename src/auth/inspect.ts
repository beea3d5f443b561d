import { type Grants, readMatchers } from '../hub/grants.ts';
import { parseTopic } from '../hub/topic.ts';
import { completed, unlimitedBudget } from '../kernel/scheduler.ts';
import { checkClaims, checkHeader } from './claim-checks.ts';
import { coverTopic } from './coverage.ts';
import { attempt, type Check, quote } from './diagnosis.ts';
import { checkAlgorithm, checkRole, checkSignature, findIssuer, issuerKeyFor } from './issuer.ts';
import { parseToken, type UnverifiedToken } from './unverified-token.ts';
import {
  acceptsLegacy,
  checkReadable,
  isLegacy,
  readGrants,
  type TokenVerifierOptions,
} from './verify.ts';

export type { Check } from './diagnosis.ts';

/** The intended use of the token. */
export interface InspectedUse {
  readonly action: 'publish' | 'subscribe';
  /** The hub's identity for such a request. */
  readonly audience: string;
  /** null skips the grants. */
  readonly topic: string | null;
}

/**
 * Every check that the hub would make, passed or not, in its order. Checks that depend on a failed one are
 * left out. For the operator only.
 */
export async function inspectToken(
  text: string,
  options: TokenVerifierOptions,
  use: InspectedUse,
): Promise<readonly Check[]> {
  const parsed = attempt('shape', 'a signed JWT', () => parseToken(text));
  const { value: token } = parsed;
  if (token === null) return [parsed.check];
  const legacy = isLegacy(token, options);
  const relaxed = acceptsLegacy(options);
  const grants = attempt('authorization_details', 'valid entries', () =>
    completed(readGrants(token, options, legacy, unlimitedBudget())),
  );
  const readable = checkReadable(token, options);
  // The others are about tokens of another kind.
  if (!readable.passed) return [parsed.check, readable];
  return [
    parsed.check,
    ...checkHeader(token, { relaxed }),
    ...(await checkIssuerKey(token, options, use, relaxed)),
    ...checkClaims(token, { audience: use.audience, nowMs: options.clock.now(), relaxed, legacy }),
    grants.check,
    ...(grants.value === null ? [] : checkGrant(grants.value, use, options.base)),
  ];
}

async function checkIssuerKey(
  token: UnverifiedToken,
  { issuers }: TokenVerifierOptions,
  { action }: InspectedUse,
  relaxed: boolean,
): Promise<readonly Check[]> {
  const { issuer, check } = findIssuer(issuers, token, relaxed);
  if (issuer === null) return [check];
  const role = action === 'publish' ? 'publisher' : 'subscriber';
  const issuerKey = issuerKeyFor(issuer, role);
  const checks = [check, checkRole(issuerKey, issuer, role)];
  if (issuerKey === null) return checks;
  const algorithm = checkAlgorithm(token, issuerKey);
  if (!algorithm.passed) return [...checks, algorithm];
  return [...checks, algorithm, await checkSignature(token, issuerKey)];
}

function checkGrant(
  grants: Grants,
  { action, topic }: InspectedUse,
  base: string,
): readonly Check[] {
  if (topic === null) return [];
  const matchers = action === 'publish' ? grants.publish : readMatchers(grants);
  const { verdict, because } = coverTopic(matchers, parseTopic(topic, base));
  const passed = verdict === 'all';
  return [
    {
      check: 'grant',
      passed,
      expected: `a ${action} grant that covers ${quote(topic)}`,
      found: passed ? because : `no grant that covers it: ${because}`,
      fix: `add an authorization detail with the action "${action}" and a matcher for the topic`,
    },
  ];
}
