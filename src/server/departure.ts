/** Who is told once when a client leaves before its response is complete. */
export class Departure {
  readonly #listeners = new Set<() => void>();
  #abort: AbortController | undefined;
  #isOver = false;

  /** Told at once after the departure; the returned function takes it back. */
  tell(listener: () => void): () => void {
    if (this.#isOver) {
      queueMicrotask(listener);
      return () => {};
    }
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#isOver) this.#abort.abort();
    }
    return this.#abort.signal;
  }

  happen(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#abort?.abort();
    for (const listener of this.#listeners) listener();
    this.#listeners.clear();
  }
}
