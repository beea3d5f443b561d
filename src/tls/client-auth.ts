import type { X509Certificate } from 'node:crypto';
import type { ClientAuthMode } from './handshake-policy.ts';

/** The side of a TLS connection that tells who the client is. */
export interface ClientIdentity {
  getPeerX509Certificate(): X509Certificate | undefined;
  readonly authorized: boolean;
  /** A code of OpenSSL, which Node declares as an Error. */
  readonly authorizationError: unknown;
}

/**
 * Why a client must not go on after its handshake; null when it may. The certificate is looked at
 * before `authorized`, which Node sets on a resumed session of TLS 1.3 that has none.
 */
export function refusalReason(client: ClientIdentity, mode: ClientAuthMode): string | null {
  const given = client.getPeerX509Certificate() !== undefined;
  const trusted = given && client.authorized;
  switch (mode) {
    case 'request':
      return null;
    case 'require':
      return given ? null : 'no certificate was given';
    case 'verify_if_given':
      return !given || trusted ? null : untrusted(client);
    case 'require_and_verify':
      if (!given) return 'no certificate was given';
      return trusted ? null : untrusted(client);
  }
}

/** Whether the client has proven who it is: its certificate was looked at, and is one of the trust pool. */
export function isVerified(client: ClientIdentity, mode: ClientAuthMode): boolean {
  const verifies = mode === 'verify_if_given' || mode === 'require_and_verify';
  return verifies && client.getPeerX509Certificate() !== undefined && client.authorized;
}

function untrusted({ authorizationError }: ClientIdentity): string {
  return `the certificate is not trusted: ${String(authorizationError)}`;
}
