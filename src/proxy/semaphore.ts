// Where the connections to an upstream are limited, requests queue here and not in the HTTP client,
// so that a client that leaves also leaves the queue.

import { ForwardError } from './forward-error.ts';
import type { RequestingClient } from './requesting-client.ts';
import { HubgateError } from '../kernel/error.ts';

/** How many requests an upstream may have at once, and who waits for his turn. */
export class Semaphore {
  readonly areUnlimited: boolean;
  readonly #maxWaiting: number;
  #free: number;
  readonly #waiting = new Set<() => void>();

  /** `limit` 0 for as many as there are. */
  constructor(limit: number, maxWaiting: number) {
    this.areUnlimited = limit === 0;
    this.#free = limit;
    this.#maxWaiting = maxWaiting;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * Resolves when there is a place, which then is to be given back. A client that leaves does not
   * wait any longer.
   *
   * @throws ForwardError `upstream-busy`, `upstream-aborted`
   */
  take(client: RequestingClient): Promise<void> {
    if (this.#free > 0) {
      this.#free -= 1;
      return Promise.resolve();
    }
    if (this.#waiting.size >= this.#maxWaiting) {
      const full = new HubgateError('upstream-busy', `${this.#maxWaiting} requests wait already`);
      return Promise.reject(new ForwardError('upstream-busy', 'unsent', full));
    }
    return new Promise((resolve, reject) => {
      const go = (): void => {
        forget();
        resolve();
      };
      const forget = client.onAbandoned(() => {
        this.#waiting.delete(go);
        const left = new HubgateError('client-left', 'The client did not wait for its turn');
        reject(new ForwardError('upstream-aborted', 'unsent', left));
      });
      this.#waiting.add(go);
    });
  }

  giveBack(): void {
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next);
    next();
  }
}
