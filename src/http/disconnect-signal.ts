/** The listeners that are called once if a client leaves before its response is complete. */
export class DisconnectSignal {
  /** Most signals have only one. */
  #listener: (() => void) | null = null;
  #others: Set<() => void> | null = null;
  #abort: AbortController | undefined;
  #isOver = false;

  /** Adds a listener. It is called soon if the client has left already. The returned function removes it. */
  add(listener: () => void): () => void {
    if (this.#isOver) {
      queueMicrotask(listener);
      return () => {};
    }
    if (this.#listener === null) this.#listener = listener;
    else (this.#others ??= new Set()).add(listener);
    return () => {
      if (this.#listener === listener) this.#listener = null;
      else this.#others?.delete(listener);
    };
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#isOver) this.#abort.abort();
    }
    return this.#abort.signal;
  }

  trigger(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#abort?.abort();
    const [listener, others] = [this.#listener, this.#others];
    this.#listener = null;
    this.#others = null;
    listener?.();
    if (others !== null) for (const other of others) other();
  }
}
