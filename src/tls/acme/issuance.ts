import { isIP } from 'node:net';
import type { Clock } from '../../kernel/clock.ts';
import type { Logger } from '../../kernel/log.ts';
import { certificateNames } from '../certificate-store.ts';
import { type KeyPair, readKeyPair } from '../key-pair.ts';
import { AcmeError, asAcmeError, cureOf } from './acme-error.ts';
import { type Challenges, type ChallengeType } from './challenges.ts';
import { type AcmeAccount, orderCertificate } from './client.ts';
import { requireUrl } from '../../kernel/parse-url.ts';

/** What is wanted, and of whom: the accounts in the order in which they are tried. */
export interface CertificateRequest {
  /** DNS name or IP address. */
  readonly name: string;
  readonly accounts: readonly AcmeAccount[];
  /** Where it is tried first, whose certificate nobody wants; null for nowhere. */
  readonly staging: AcmeAccount | null;
  /** At least one, in the order in which they are tried. */
  readonly challenges: readonly ChallengeType[];
}

export interface IssuanceTools {
  readonly storage: string;
  readonly challenges: Challenges;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface IssuedCertificate {
  /** Host of the directory that gave it. */
  readonly authority: string;
  readonly pair: KeyPair;
}

/** Longest time for one order; validation from several places of the world takes its time. */
const ORDER_TIMEOUT_MS = 3 * 60_000;

/**
 * Gets a certificate from the first authority that gives one. With each, the challenges are tried
 * one after the other, on a new order each: one that has failed ends its order (RFC 8555 §7.1.6).
 *
 * @throws AcmeError of the last authority, or the reason of the signal
 */
export async function obtainCertificate(
  request: CertificateRequest,
  tools: IssuanceTools,
  signal: AbortSignal,
): Promise<IssuedCertificate> {
  await rehearse(request, tools, signal);
  let last = new AcmeError('acme-failed', `No authority is named for ${request.name}`);
  for (const account of request.accounts) {
    const authority = authorityOf(account);
    try {
      return { authority, pair: await obtainFrom(account, request, tools, signal) };
    } catch (error) {
      signal.throwIfAborted();
      last = asAcmeError(error);
      if (account === request.accounts.at(-1)) break;
      tools.log.warn('An authority gives no certificate; the next one is asked', {
        name: request.name,
        authority,
        error: last.message,
        cure: cureOf(last),
      });
    }
  }
  throw last;
}

/** What fails where nothing is counted would fail where it is. */
async function rehearse(
  request: CertificateRequest,
  tools: IssuanceTools,
  signal: AbortSignal,
): Promise<void> {
  const { name, staging } = request;
  if (staging === null) return;
  await obtainFrom(staging, request, tools, signal);
  tools.log.info('The staging authority gives a certificate', {
    name,
    authority: authorityOf(staging),
  });
}

/** The name under which an authority's certificates are kept: the host of its directory. */
export function authorityOf({ directory }: Pick<AcmeAccount, 'directory'>): string {
  return requireUrl(directory).host;
}

async function obtainFrom(
  account: AcmeAccount,
  { name, challenges }: CertificateRequest,
  tools: IssuanceTools,
  signal: AbortSignal,
): Promise<KeyPair> {
  const failures: AcmeError[] = [];
  for (const type of challenges) {
    try {
      return await order(account, name, type, tools, signal);
    } catch (error) {
      const failure = asAcmeError(error);
      signal.throwIfAborted();
      if (failure.code !== 'acme-challenge-failed') throw failure;
      tools.log.debug('A challenge failed', { name, type, error: failure.message });
      failures.push(failure);
    }
  }
  const [first, ...rest] = failures;
  const last = rest.at(-1) ?? first;
  throw new AcmeError(
    'acme-challenge-failed',
    failures.map((one, i) => `${challenges[i]}: ${one.message}`).join('; '),
    { problem: last?.problem ?? null, retryAfterMs: last?.retryAfterMs ?? null, cause: last },
  );
}

async function order(
  account: AcmeAccount,
  name: string,
  type: ChallengeType,
  { storage, challenges, clock }: IssuanceTools,
  signal: AbortSignal,
): Promise<KeyPair> {
  const deadline = new AbortController();
  const cancel = clock.after(ORDER_TIMEOUT_MS, () => {
    deadline.abort(new AcmeError('acme-timeout', `${authorityOf(account)} takes too long`));
  });
  try {
    const { chain, key } = await orderCertificate(name, type, {
      account,
      storage,
      clock,
      signal: AbortSignal.any([signal, deadline.signal]),
      publish: (challenge) => challenges.publish(challenge),
    });
    const pair = readKeyPair(chain, key);
    if (pair !== null && certificateNames(chain).some((one) => sameName(one, name))) return pair;
    throw new AcmeError('acme-refused', 'The certificate that was issued is not the one asked for');
  } finally {
    cancel();
  }
}

/** IPv6 addresses are written in several ways. */
function sameName(one: string, other: string): boolean {
  if (one.toLowerCase() === other) return true;
  return isIP(one) === 6 && isIP(other) === 6 && ipv6(one) === ipv6(other);
}

function ipv6(address: string): string {
  return requireUrl(`http://[${address}]`).hostname;
}
