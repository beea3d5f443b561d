import { addTo, deleteFrom } from '../kernel/set-map.ts';
import type { Subscriber } from './subscriber.ts';

/** All open streams of a hub, indexed by everything that can end them together. */
export class StreamRegistry {
  readonly #all = new Set<Subscriber>();
  readonly #byToken = new Map<string, Set<Subscriber>>();
  readonly #bySession = new Map<string, Set<Subscriber>>();
  readonly #byIssuerKey = new Map<string | null, Set<Subscriber>>();

  get size(): number {
    return this.#all.size;
  }

  has(subscriber: Subscriber): boolean {
    return this.#all.has(subscriber);
  }

  all(): ReadonlySet<Subscriber> {
    return this.#all;
  }

  /** Streams that were opened with the token of this `jti`. */
  ofToken(tokenId: string): Iterable<Subscriber> {
    return this.#byToken.get(tokenId) ?? [];
  }

  /** Streams of a browser session. */
  ofSession(session: string): Iterable<Subscriber> {
    return this.#bySession.get(session) ?? [];
  }

  /** Streams by the authorization behind their tokens; null for streams without a token. */
  issuerKeys(): Iterable<[issuerKey: string | null, subscribers: ReadonlySet<Subscriber>]> {
    return this.#byIssuerKey;
  }

  add(subscriber: Subscriber): void {
    const { tokenId, session, issuerKey } = subscriber.options;
    this.#all.add(subscriber);
    if (tokenId !== null) addTo(this.#byToken, tokenId, subscriber);
    if (session !== null) addTo(this.#bySession, session, subscriber);
    addTo(this.#byIssuerKey, issuerKey, subscriber);
  }

  delete(subscriber: Subscriber): void {
    const { tokenId, session, issuerKey } = subscriber.options;
    this.#all.delete(subscriber);
    if (tokenId !== null) deleteFrom(this.#byToken, tokenId, subscriber);
    if (session !== null) deleteFrom(this.#bySession, session, subscriber);
    deleteFrom(this.#byIssuerKey, issuerKey, subscriber);
  }
}
