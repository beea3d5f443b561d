/** 0 means no limit. */
export interface ConnectionLimits {
  readonly max: number;
  readonly maxPerClient: number;
}

/** Counts the open streams of a hub, in total and by client. The counts outlive a reload. */
export class ConnectionCounter {
  readonly #byClient = new Map<string, number>();
  #total = 0;

  /** Takes a place for a client; null if there is none left. */
  enter(client: string, { max, maxPerClient }: ConnectionLimits): ConnectionPlace | null {
    const own = this.#byClient.get(client) ?? 0;
    if (max > 0 && this.#total >= max) return null;
    if (maxPerClient > 0 && own >= maxPerClient) return null;
    this.#total += 1;
    this.#byClient.set(client, own + 1);
    return new ConnectionPlace(this, client);
  }

  /** Only for {@link ConnectionPlace}. */
  left(client: string): void {
    this.#total -= 1;
    const remaining = (this.#byClient.get(client) ?? 1) - 1;
    if (remaining === 0) this.#byClient.delete(client);
    else this.#byClient.set(client, remaining);
  }
}

/** A place that a stream occupies. */
export class ConnectionPlace {
  readonly #client: string;
  #counter: ConnectionCounter | null;

  constructor(counter: ConnectionCounter, client: string) {
    this.#counter = counter;
    this.#client = client;
  }

  /** Releases the place; another call does nothing. */
  leave(): void {
    this.#counter?.left(this.#client);
    this.#counter = null;
  }
}
