/** A certificate chain, leaf first, with its private key, all PEM. */
export interface KeyPair {
  readonly chain: string;
  readonly key: string;
  /** Milliseconds since the epoch. */
  readonly notBefore: number;
  readonly notAfter: number;
}

/** From here on, in the last third of its life, a certificate is to be replaced. */
export function renewalTime({
  notBefore,
  notAfter,
}: Pick<KeyPair, 'notBefore' | 'notAfter'>): number {
  return notAfter - (notAfter - notBefore) / 3;
}
