import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { createSecureContext } from 'node:tls';

/** The certificate that a handshake presents. A `HandshakePolicy` contains everything else. */
export interface Certificate {
  /** The chain, leaf first, PEM. */
  readonly cert: string;
  readonly key: string;
}

export interface SiteCertificates {
  /**
   * @param mayWait whether to wait for a certificate in progress; otherwise it counts as missing
   * @throws HubgateError if there is none yet
   */
  certificateFor(names: readonly string[], mayWait?: boolean): Promise<Certificate>;
  /** For clients that send no name; null if there is none yet. */
  fallbackFor(names: readonly string[]): Promise<Certificate | null>;
  /** The certificates that have been read or issued so far. */
  inUse(): readonly CertificateInUse[];
}

/** A certificate in use, as the operator sees it. */
export interface CertificateInUse {
  /** DNS names and IP addresses of the certificate; for an authority, its common name. */
  readonly names: readonly string[];
  /** The issuer: `files`, `local`, or the host of an ACME directory. */
  readonly authority: string;
  /** End of its validity in milliseconds since the epoch. */
  readonly notAfter: number;
}

/** A certificate chain, leaf first, with its private key, all PEM. */
export interface KeyPair {
  readonly chain: string;
  readonly key: string;
  /** Milliseconds since the epoch. */
  readonly notBefore: number;
  readonly notAfter: number;
}

/** A chain with its key and the dates of its leaf; null if they do not belong together or cannot be read. */
export function readKeyPair(chain: string, key: string): KeyPair | null {
  try {
    const leaf = new X509Certificate(chain);
    if (!leaf.checkPrivateKey(createPrivateKey(key))) return null;
    // Refuses a chain whose end is damaged, as every handshake would.
    createSecureContext({ cert: chain, key });
    return {
      chain,
      key,
      notBefore: Date.parse(leaf.validFrom),
      notAfter: Date.parse(leaf.validTo),
    };
  } catch {
    // Not PEM at all, or damaged.
    return null;
  }
}

/** Whether a certificate, in PEM, is for a host: a name, a wildcard or an address (RFC 9525 §6). */
export function coversHost(cert: string, host: string): boolean {
  const certificate = new X509Certificate(cert);
  if (isIP(host) !== 0) return certificate.checkIP(host) !== undefined;
  // A certificate for a wildcard is valid for any name below it.
  const name = host.replace(/^\*\./, 'any-name.');
  return certificate.checkHost(name, { subject: 'never' }) !== undefined;
}

/** The time from which a certificate is replaced: the beginning of the last third of its life. */
export function renewalTime({
  notBefore,
  notAfter,
}: Pick<KeyPair, 'notBefore' | 'notAfter'>): number {
  return notAfter - (notAfter - notBefore) / 3;
}

/**
 * Whether a certificate of this machine's own authority need not be replaced. Its validity begins in the
 * future if it was made while the system clock was ahead.
 */
export function isFresh(pair: Pick<KeyPair, 'notBefore' | 'notAfter'>, now: number): boolean {
  return pair.notBefore <= now && now < renewalTime(pair);
}
