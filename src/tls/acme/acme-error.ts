import { codeOf, HubgateError, messageOf } from '../../kernel/error.ts';

/** Why there is not a certificate, and what may be done about it. */
interface AcmeFailure {
  /** Type of the problem without its prefix (RFC 8555 §6.7): `rateLimited`; null when there is none. */
  readonly problem?: string | null;
  /** What the authority asks to wait (RFC 8555 §6.6). */
  readonly retryAfterMs?: number | null;
  readonly cause?: unknown;
}

/** Longest text that is taken over from an authority, in characters. */
const MAX_DETAIL = 300;

/**
 * An authority that could not be reached (`acme-unreachable`), refused (`acme-refused`), did not
 * find its challenge answered (`acme-challenge-failed`) or took too long (`acme-timeout`); a record that could not be written or
 * seen (`acme-dns-failed`); or one
 * that was not asked, because the name does not lead here (`acme-name-elsewhere`).
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

/** Whatever was thrown on the way to a certificate, as an {@link AcmeError}. */
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

/** What to do about the commonest causes; null where nothing general can be said. */
export function fixFor({ code, problem, cause }: AcmeError): string | null {
  if (problem !== null) return Object.hasOwn(CURES, problem) ? (CURES[problem] ?? null) : null;
  if (code === 'acme-dns-failed') return 'check dns or acme_dns, and the rights at the provider';
  if (code !== 'acme-unreachable') return null;
  const reason = codeOf(cause) ?? '';
  if (/CERT|SIGNATURE|SELF_SIGNED|ISSUER/.test(reason)) {
    return 'configure the root certificate of a private authority: acme_ca_root';
  }
  return 'this machine must be able to reach the authority: check acme_ca, DNS and firewalls';
}
