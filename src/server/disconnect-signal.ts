/** Who is told once when a client leaves before its response is complete. */
export class DisconnectSignal {
  /** Most have one. */
  #listener: (() => void) | null = null;
  #others: Set<() => void> | null = null;
  #abort: AbortController | undefined;
  #isOver = false;

  /** Told at once after the departure; the returned function takes it back. */
  tell(listener: () => void): () => void {
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
    const [listener, others] = [this.#listener, this.#others];
    this.#listener = null;
    this.#others = null;
    listener?.();
    if (others !== null) for (const other of others) other();
  }
}
