import { createPrivateKey, X509Certificate } from 'node:crypto';

/** What a handshake presents; how it goes otherwise, a `HandshakePolicy` says. */
export interface Certificate {
  /** The chain, leaf first, PEM. */
  readonly cert: string;
  readonly key: string;
}

/** The certificates of one site. */
export interface SiteCertificates {
  /**
   * @param mayWait for one that is on its way; else it is as if there were none
   * @throws HubgateError when there is none yet
   */
  certificateFor(names: readonly string[], mayWait?: boolean): Promise<Certificate>;
  /** For clients that send no name; null when there is none yet. */
  fallbackFor(names: readonly string[]): Promise<Certificate | null>;
  /** Those that have been read, or issued until now. */
  inUse(): readonly CertificateInUse[];
}

/** A certificate that the gateway uses now, as its operator sees it. */
export interface CertificateInUse {
  /** DNS names and IP addresses that it is for; of an authority, its common name. */
  readonly names: readonly string[];
  /** Who signed it: `files`, `local`, or the host of an ACME directory. */
  readonly authority: string;
  /** End of its life in milliseconds since the epoch. */
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

/** A chain with its key and the dates of its leaf; null when they do not belong together, or are none. */
export function readKeyPair(chain: string, key: string): KeyPair | null {
  try {
    const leaf = new X509Certificate(chain);
    if (!leaf.checkPrivateKey(createPrivateKey(key))) return null;
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

/** From here on, in the last third of its life, a certificate is to be replaced. */
export function renewalTime({
  notBefore,
  notAfter,
}: Pick<KeyPair, 'notBefore' | 'notAfter'>): number {
  return notAfter - (notAfter - notBefore) / 3;
}
