// A certificate has issuers that are tried in order. Each has its account, roots and challenges;
// the local authority is one of them.

import { isIP } from 'node:net';
import type { OnDemandOptions } from '../../config/config.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Logger } from '../../kernel/log.ts';
import { certificateNames } from '../certificate-store.ts';
import { type KeyPair, readKeyPair } from '../certificate.ts';
import { AcmeError, asAcmeError, fixFor } from './acme-error.ts';
import type { LocalAuthority } from '../local-authority.ts';
import type { Challenges, ChallengeType } from './challenges.ts';
import { type AcmeAccount, type ChallengeProof, orderCertificate } from './client.ts';
import { requireUrl } from '../../kernel/parse-url.ts';

/** What is wanted, and of whom: the issuers in the order in which they are tried. */
export interface CertificateRequest {
  /** DNS name or IP address. */
  readonly name: string;
  readonly issuers: readonly Issuer[];
  /** Where it is tried first, whose certificate nobody wants; null for nowhere. */
  readonly staging: AcmeAccount | null;
  /** Who is asked each time whether it may be ordered; null: nobody. */
  readonly onDemand: OnDemandOptions | null;
}

/** An account with an authority, or the gateway's own authority. */
export type Issuer = AcmeAccount | 'local';

export interface IssuanceTools {
  readonly storage: string;
  readonly challenges: Challenges;
  readonly localAuthority: Pick<LocalAuthority, 'issue'>;
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
  await dryRun(request, tools, signal);
  let last = new AcmeError('acme-failed', `No authority is configured for ${request.name}`);
  for (const issuer of request.issuers) {
    const authority = authorityOf(issuer);
    try {
      return { authority, pair: await obtainFrom(issuer, request, tools, signal) };
    } catch (error) {
      signal.throwIfAborted();
      last = asAcmeError(error);
      if (issuer === request.issuers.at(-1)) break;
      tools.log.warn('An authority issued no certificate; hubgate asks the next one', {
        name: request.name,
        authority,
        error: last.message,
        fix: fixFor(last),
      });
    }
  }
  throw last;
}

/** What fails where nothing is counted would fail where it is. */
async function dryRun(
  request: CertificateRequest,
  tools: IssuanceTools,
  signal: AbortSignal,
): Promise<void> {
  const { name, staging } = request;
  if (staging === null) return;
  await obtainFrom(staging, request, tools, signal);
  tools.log.info('The staging authority issued a certificate', {
    name,
    authority: authorityOf(staging),
  });
}

/** The name under which an authority's certificates are kept: the host of its directory. */
export function authorityOf(issuer: Issuer): string {
  return issuer === 'local' ? 'local' : requireUrl(issuer.directory).host;
}

async function obtainFrom(
  account: Issuer,
  { name }: CertificateRequest,
  tools: IssuanceTools,
  signal: AbortSignal,
): Promise<KeyPair> {
  if (account === 'local') return tools.localAuthority.issue([name]);
  const { challenges } = account;
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
  tools: IssuanceTools,
  signal: AbortSignal,
): Promise<KeyPair> {
  const { storage, clock } = tools;
  const deadline = new AbortController();
  const cancel = clock.after(ORDER_TIMEOUT_MS + waitOf(account), () => {
    deadline.abort(new AcmeError('acme-timeout', `${authorityOf(account)} takes too long`));
  });
  try {
    const bounded = AbortSignal.any([signal, deadline.signal]);
    const { chain, key } = await orderCertificate(name, type, {
      account,
      storage,
      clock,
      signal: bounded,
      publish: (proof) => publish(proof, account, { ...tools, signal: bounded }),
    });
    const pair = readKeyPair(chain, key);
    if (pair !== null && certificateNames(chain).some((one) => sameName(one, name))) return pair;
    throw new AcmeError('acme-refused', 'The certificate that was issued is not the one asked for');
  } finally {
    cancel();
  }
}

/** What the answers of a DNS challenge may take beside. */
function waitOf({ dns }: AcmeAccount): number {
  if (dns === null) return 0;
  const { provider, propagationDelayMs, propagationTimeoutMs } = dns;
  const program = provider.kind === 'exec' ? provider.timeoutMs : 0;
  return program + propagationDelayMs + propagationTimeoutMs;
}

async function publish(
  { type, name, token, keyAuthorization }: ChallengeProof,
  { dns }: AcmeAccount,
  tools: IssuanceTools & { readonly signal: AbortSignal },
): Promise<() => Promise<void>> {
  if (type !== 'dns-01') return tools.challenges.publish({ type, name, token, keyAuthorization });
  if (dns === null)
    throw new AcmeError('acme-dns-failed', `No DNS provider is configured for ${name}`);
  // Only now: who uses no provider does not load them.
  const { publishRecord } = await import('./dns/dns-challenge.ts');
  return publishRecord(name, keyAuthorization, dns, tools);
}

/** IPv6 addresses are written in several ways. */
function sameName(one: string, other: string): boolean {
  if (one.toLowerCase() === other) return true;
  return isIP(one) === 6 && isIP(other) === 6 && ipv6(one) === ipv6(other);
}

function ipv6(address: string): string {
  return requireUrl(`http://[${address}]`).hostname;
}
