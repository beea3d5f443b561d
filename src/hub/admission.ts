import type { SubscriberOptions } from './subscriber.ts';

/** Whether a stream may be open, by what stands behind its token; null stands for no token. */
type IssuerKey = Pick<SubscriberOptions, 'issuerKey'>;
export type MayStayOpen = (stream: IssuerKey) => boolean;

/** Revocations that are remembered for those who were being let in when they came. */
const REMEMBERED = 1000;

/**
 * Who may still come in. Between the moment at which a token was found good and the one at which
 * its stream is registered, a reload may have dropped its issuer, the operator may have revoked it,
 * or its user may have logged out: what ends the open streams must reach those that are opening.
 */
export class Admission {
  #keeps: MayStayOpen = () => true;
  /** The last ones, by their numbers. */
  readonly #revocations: { readonly tokenId?: string; readonly session?: string }[] = [];
  #count = 0;

  /** How many revocations there have been: what a request notes before it looks at its token. */
  get revision(): number {
    return this.#count;
  }

  /** From now on this decides. */
  decideBy(keeps: MayStayOpen): void {
    this.#keeps = keeps;
  }

  revoked(what: { readonly tokenId: string } | { readonly session: string }): void {
    this.#revocations[this.#count % REMEMBERED] = what;
    this.#count += 1;
  }

  /** Whether a stream may be opened whose token was looked at when the revision was `revocationEpoch`. */
  admits(
    stream: Pick<SubscriberOptions, 'issuerKey' | 'tokenId' | 'session'>,
    revocationEpoch: number,
  ): boolean {
    if (!this.#keeps(stream)) return false;
    // Too long ago to know: the client comes again.
    if (this.#count - revocationEpoch > REMEMBERED) return false;
    for (let number = revocationEpoch; number < this.#count; number += 1) {
      const revocation = this.#revocations[number % REMEMBERED];
      if (stream.tokenId !== null && revocation?.tokenId === stream.tokenId) return false;
      if (stream.session !== null && revocation?.session === stream.session) return false;
    }
    return true;
  }
}
