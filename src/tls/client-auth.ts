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

function untrusted({ authorizationError }: ClientIdentity): string {
  return `the certificate is not trusted: ${String(authorizationError)}`;
}
