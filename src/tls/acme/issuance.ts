// A certificate has issuers that are tried in order. Each has its own account, roots and challenges. The
// local authority can be one of them.

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
import { requireUrl } from '../../kernel/parse.ts';

/** The requested certificate, and the issuers in the order of the attempts. */
export interface CertificateRequest {
  /** DNS name or IP address. */
  readonly name: string;
  readonly issuers: readonly Issuer[];
  /** Account for a dry run, whose certificate is discarded; null for no dry run. */
  readonly staging: AcmeAccount | null;
  /** The settings of the permission check before each order; null for no check. */
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
  /** Host of the directory of the authority that issued it. */
  readonly authority: string;
  readonly pair: KeyPair;
}

/** Longest time for one order. Validation from several places in the world takes a while. */
const ORDER_TIMEOUT_MS = 3 * 60_000;

/**
 * Gets a certificate from the first authority that issues one. With each authority, the challenges are tried
 * one after the other, each with a new order, because a failed challenge ends its order (RFC 8555 §7.1.6).
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

/**
 * Orders from the staging directory first, which counts no failures. What fails there would also fail in
 * production.
 */
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

/** The name under which the certificates of an authority are stored: the host of its directory. */
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
  const last = failures.at(-1);
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

/** The additional time that a DNS challenge needs. */
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
  // Imported only now: gateways without a DNS provider do not load this code.
  const { publishRecord } = await import('./dns/dns-challenge.ts');
  return publishRecord(name, keyAuthorization, dns, tools);
}

/** One IPv6 address can be written in several ways. */
function sameName(one: string, other: string): boolean {
  if (one.toLowerCase() === other) return true;
  return isIP(one) === 6 && isIP(other) === 6 && ipv6(one) === ipv6(other);
}

function ipv6(address: string): string {
  return requireUrl(`http://[${address}]`).hostname;
}
