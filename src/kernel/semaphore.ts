import { HubgateError } from './error.ts';

/** Limits how many callers hold a place at the same time. The others wait in the order of their arrival. */
export class Semaphore {
  readonly #waiting = new Set<() => void>();
  #free: number;

  constructor(places: number) {
    this.#free = places;
  }

  /** The number of waiting callers. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * Resolves when the caller holds a place. {@link release} gives it back.
   *
   * @param onCancelled registers a listener for the end of the wait, with a reason; returns a function that
   * removes it
   * @throws (rejects with) that reason
   */
  acquire(onCancelled: (cancel: (reason: unknown) => void) => () => void): Promise<void> {
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const go = (): void => {
        forget();
        resolve();
      };
      const forget = onCancelled((reason) => {
        this.#waiting.delete(go);
        reject(reason);
      });
      this.#waiting.add(go);
    });
  }

  /** Gives a place back, to the caller that has waited longest. */
  release(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }

  /**
   * Runs a task while holding a place. @throws the reason of the signal if it is aborted first; what the task
   * throws
   */
  async run<T>(signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    await this.acquire((cancel) => {
      const abort = (): void => cancel(signal.reason);
      signal.addEventListener('abort', abort, { once: true });
      return () => signal.removeEventListener('abort', abort);
    });
    try {
      return await task();
    } finally {
      this.release();
    }
  }
}

export interface FairQueueOptions {
  /** Callers that are served at the same time. */
  readonly places: number;
  /** Of these, how many may be clients that have not been served successfully before. */
  readonly unknownPlaces: number;
  /** Of these, how many may belong to one such client. */
  readonly placesPerUnknown: number;
  /** Callers that may wait, counted separately for known and for unknown clients. */
  readonly maxWaiting: number;
}

interface Waiting {
  readonly go: () => void;
  readonly fail: (error: Error) => void;
}

/** Waiting callers by client, in the order of their turns. */
class Line {
  readonly #clients = new Map<string, Waiting[]>();
  size = 0;

  add(client: string, one: Waiting): void {
    const own = this.#clients.get(client);
    if (own === undefined) this.#clients.set(client, [one]);
    else own.push(one);
    this.size += 1;
  }

  /**
   * The next caller of the first client that may be served. The client then moves to the end of the queue.
   */
  take(may: (client: string) => boolean): { client: string; one: Waiting } | undefined {
    for (const [client, own] of this.#clients) {
      if (!may(client)) continue;
      const one = own.shift();
      this.#clients.delete(client);
      if (own.length > 0) this.#clients.set(client, own);
      if (one === undefined) continue;
      this.size -= 1;
      return { client, one };
    }
    return undefined;
  }

  remove(client: string, one: Waiting): void {
    const own = this.#clients.get(client);
    const at = own?.indexOf(one) ?? -1;
    if (own === undefined || at === -1) return;
    own.splice(at, 1);
    if (own.length === 0) this.#clients.delete(client);
    this.size -= 1;
  }

  /**
   * Makes room for a client by rejecting the last caller of a client that has more of them waiting. Returns
   * false if there is none.
   */
  makeRoom(client: string): boolean {
    let most = { client, own: this.#clients.get(client) ?? [] };
    const least = most.own.length + 1;
    for (const [other, own] of this.#clients) {
      if (own.length > Math.max(least, most.own.length)) most = { client: other, own };
    }
    const last = most.client === client ? undefined : most.own.at(-1);
    if (last === undefined) return false;
    this.remove(most.client, last);
    last.fail(full());
    return true;
  }
}

/**
 * Hands out a limited number of places in fair turns: one to each client, then the next to each. Clients that
 * have been served successfully before have a queue of their own and get every other turn, so any number of
 * unknown clients cannot keep them waiting.
 */
export class FairQueue {
  readonly #options: FairQueueOptions;
  readonly #known = new Line();
  readonly #unknown = new Line();
  readonly #unknownServed = new Map<string, number>();
  #served = 0;
  #servedUnknown = 0;
  #isTurnOfKnown = true;

  constructor(options: FairQueueOptions) {
    this.#options = options;
  }

  /**
   * Resolves to a function that gives the place back.
   *
   * @throws HubgateError `queue-full`; the reason of the signal when it is aborted
   */
  take(client: string, isKnown: boolean, signal?: AbortSignal): Promise<() => void> {
    const line = isKnown ? this.#known : this.#unknown;
    if (line.size >= this.#options.maxWaiting && !line.makeRoom(client)) {
      return Promise.reject(full());
    }
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        line.remove(client, one);
        reject(signal?.reason);
      };
      const one: Waiting = {
        go: () => {
          signal?.removeEventListener('abort', onAbort);
          resolve(this.#begin(client, isKnown));
        },
        fail: (error) => {
          signal?.removeEventListener('abort', onAbort);
          reject(error);
        },
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      line.add(client, one);
      this.#serve();
    });
  }

  #begin(client: string, isKnown: boolean): () => void {
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#served -= 1;
      if (!isKnown) {
        this.#servedUnknown -= 1;
        const left = (this.#unknownServed.get(client) ?? 1) - 1;
        if (left === 0) this.#unknownServed.delete(client);
        else this.#unknownServed.set(client, left);
      }
      this.#serve();
    };
  }

  #serve(): void {
    while (this.#served < this.#options.places) {
      const first = this.#isTurnOfKnown ? this.#takeKnown() : this.#takeUnknown();
      const next = first ?? (this.#isTurnOfKnown ? this.#takeUnknown() : this.#takeKnown());
      if (next === undefined) return;
      this.#isTurnOfKnown = !this.#isTurnOfKnown;
      this.#served += 1;
      next.go();
    }
  }

  #takeKnown(): Waiting | undefined {
    return this.#known.take(() => true)?.one;
  }

  #takeUnknown(): Waiting | undefined {
    const { unknownPlaces, placesPerUnknown } = this.#options;
    if (this.#servedUnknown >= unknownPlaces) return undefined;
    const served = this.#unknownServed;
    const next = this.#unknown.take((client) => (served.get(client) ?? 0) < placesPerUnknown);
    if (next === undefined) return undefined;
    this.#servedUnknown += 1;
    served.set(next.client, (served.get(next.client) ?? 0) + 1);
    return next.one;
  }
}

function full(): HubgateError {
  return new HubgateError('queue-full', 'Too many callers are waiting');
}
