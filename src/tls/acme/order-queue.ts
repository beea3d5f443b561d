/** Lets so many tasks run at once; the others wait in the order in which they came. */
export class OrderQueue {
  readonly #most: number;
  /** Called when it is their turn. */
  readonly #waiting = new Set<() => void>();
  #running = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** @throws the reason of the signal when it is aborted before the task's turn; what the task throws */
  async run<T>(signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    await this.#turn(signal);
    try {
      return await task();
    } finally {
      this.#running -= 1;
      const [next] = this.#waiting;
      next?.();
    }
  }

  async #turn(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#running >= this.#most) {
      await new Promise<void>((resolve, reject) => {
        const leave = (): void => {
          this.#waiting.delete(go);
          reject(signal.reason);
        };
        const go = (): void => {
          this.#waiting.delete(go);
          signal.removeEventListener('abort', leave);
          // Taken at once: who comes now must not be faster than this one's next turn of the loop.
          this.#running += 1;
          resolve();
        };
        this.#waiting.add(go);
        signal.addEventListener('abort', leave, { once: true });
      });
    } else this.#running += 1;
  }
}
