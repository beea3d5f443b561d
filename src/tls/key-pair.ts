import { createPrivateKey, X509Certificate } from 'node:crypto';

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
