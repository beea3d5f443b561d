import type { SubscriberOptions } from './subscriber.ts';

/**
 * Decides from the authorization behind a token whether its stream may be open. null means that there is no
 * token.
 */
type IssuerKey = Pick<SubscriberOptions, 'issuerKey'>;
export type MayStayOpen = (stream: IssuerKey) => boolean;

/** Revocations that are remembered for subscribers that were connecting when they arrived. */
const REMEMBERED = 1000;

/**
 * Decides which subscribers may still connect. Between the check of a token and the registration of its
 * stream, a reload may remove its issuer, the operator may revoke it, or its user may log out. Everything
 * that ends open streams must also reach streams that are just opening.
 */
export class Admission {
  #keeps: MayStayOpen = () => true;
  /** The most recent ones, by their numbers. */
  readonly #revocations: { readonly tokenId?: string; readonly session?: string }[] = [];
  #count = 0;

  /** The number of revocations so far. A request remembers it before it checks its token. */
  get revision(): number {
    return this.#count;
  }

  /** Replaces the rule for streams from now on. */
  decideBy(keeps: MayStayOpen): void {
    this.#keeps = keeps;
  }

  revoked(what: { readonly tokenId: string } | { readonly session: string }): void {
    this.#revocations[this.#count % REMEMBERED] = what;
    this.#count += 1;
  }

  /** Whether a stream may be opened if its token was checked at `revocationEpoch`. */
  admits(
    stream: Pick<SubscriberOptions, 'issuerKey' | 'tokenId' | 'session'>,
    revocationEpoch: number,
  ): boolean {
    if (!this.#keeps(stream)) return false;
    // The revocations since then are no longer known, so the client must connect again.
    if (this.#count - revocationEpoch > REMEMBERED) return false;
    for (let number = revocationEpoch; number < this.#count; number += 1) {
      const revocation = this.#revocations[number % REMEMBERED];
      if (stream.tokenId !== null && revocation?.tokenId === stream.tokenId) return false;
      if (stream.session !== null && revocation?.session === stream.session) return false;
    }
    return true;
  }
}
