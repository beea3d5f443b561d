/** 0 means no limit. */
export interface ConnectionLimits {
  readonly max: number;
  readonly maxPerClient: number;
}

/** Counts the open streams of a hub, in all and by client; the count outlives a reload. */
export class ConnectionCounter {
  readonly #byClient = new Map<string, number>();
  #total = 0;

  /** Takes a place for a client; undefined when there is none. Call the result when it leaves. */
  enter(client: string, { max, maxPerClient }: ConnectionLimits): (() => void) | undefined {
    const own = this.#byClient.get(client) ?? 0;
    if (max > 0 && this.#total >= max) return undefined;
    if (maxPerClient > 0 && own >= maxPerClient) return undefined;
    this.#total += 1;
    this.#byClient.set(client, own + 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#total -= 1;
      const remaining = (this.#byClient.get(client) ?? 1) - 1;
      if (remaining === 0) this.#byClient.delete(client);
      else this.#byClient.set(client, remaining);
    };
  }
}
