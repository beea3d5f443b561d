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
