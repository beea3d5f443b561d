import { codeOf, HubgateError, messageOf } from '../../kernel/error.ts';

/** The reason why a certificate could not be obtained, and what can be done about it. */
interface AcmeFailure {
  /**
   * Type of the problem without its prefix (RFC 8555 §6.7), for example `rateLimited`; null if there is none.
   */
  readonly problem?: string | null;
  /** The time that the authority asks the client to wait (RFC 8555 §6.6). */
  readonly retryAfterMs?: number | null;
  readonly cause?: unknown;
}

/** Longest text that is copied from a response of an authority, in characters. */
const MAX_DETAIL = 300;

/**
 * The authority could not be reached (`acme-unreachable`), refused the order (`acme-refused`), could not
 * validate the challenge (`acme-challenge-failed`) or took too long (`acme-timeout`). Or a DNS record could
 * not be written or seen (`acme-dns-failed`). Or no authority was asked, because the name does not lead to
 * this gateway (`acme-name-elsewhere`).
 */
export class AcmeError extends HubgateError {
  readonly problem: string | null;
  readonly retryAfterMs: number | null;

  constructor(code: string, message: string, failure: AcmeFailure = {}) {
    super(code, message.slice(0, MAX_DETAIL), { cause: failure.cause });
    this.name = 'AcmeError';
    this.problem = failure.problem ?? null;
    this.retryAfterMs = failure.retryAfterMs ?? null;
  }
}

/** Converts any error on the way to a certificate to an {@link AcmeError}. */
export function asAcmeError(thrown: unknown): AcmeError {
  if (thrown instanceof AcmeError) return thrown;
  return new AcmeError(codeOf(thrown) ?? 'acme-failed', messageOf(thrown), { cause: thrown });
}

const CURES: Readonly<Record<string, string>> = {
  dns: 'give the name an A or AAAA record that points to this machine',
  connection:
    'the name must point to this machine, and the authority must be able to reach port 80 or 443',
  tls: 'the name must point to this machine, and nothing in front of it may terminate TLS',
  unauthorized: 'another server answers under this name: point its DNS records to this machine',
  incorrectResponse:
    'another server answers under this name: point its DNS records to this machine',
  caa: 'allow this authority in the CAA record of the name, or choose another authority: acme_ca',
  rateLimited:
    'the authority limits the rate of requests: wait, or choose another authority: acme_ca',
  externalAccountRequired: 'the authority requires an account key: acme_eab',
  malformed: 'check acme_eab and email, if they are set',
  invalidContact: 'check the address in email',
  rejectedIdentifier:
    'this authority does not issue certificates for this name: use tls internal, or certificate files',
  unsupportedIdentifier:
    'this authority does not issue certificates for this name: use tls internal, or certificate files',
};

/** What to do about the most common causes; null if nothing general can be said. */
export function fixFor({ code, problem, cause }: AcmeError): string | null {
  if (problem !== null) return Object.hasOwn(CURES, problem) ? (CURES[problem] ?? null) : null;
  if (/^E(?:NOSPC|DQUOT|ROFS|ACCES|PERM)$/.test(code)) {
    return 'keys and certificates are kept in storage: it needs room, and must be writable';
  }
  if (code === 'acme-dns-failed') return 'check dns or acme_dns, and the rights at the provider';
  if (code !== 'acme-unreachable') return null;
  const reason = codeOf(cause) ?? '';
  if (/CERT|SIGNATURE|SELF_SIGNED|ISSUER/.test(reason)) {
    return 'configure the root certificate of a private authority: acme_ca_root';
  }
  return 'this machine must be able to reach the authority: check acme_ca, DNS and firewalls';
}
