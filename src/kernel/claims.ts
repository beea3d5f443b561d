/** A counted claim; the last release lets the resource go. */
export interface Claim<T> {
  readonly value: T;
  release(): void;
}

/** Resources by name that several claim: a new generation does before the old one lets go. */
export class Claims<T> {
  readonly #held = new Map<string, { readonly value: T; count: number }>();
  readonly #close: (value: T) => void;

  constructor(close: (value: T) => void) {
    this.#close = close;
  }

  claim(key: string, open: () => T): Claim<T> {
    const held = this.#held.get(key) ?? { value: open(), count: 0 };
    this.#held.set(key, held);
    held.count += 1;
    let released = false;
    return {
      value: held.value,
      release: () => {
        if (released) return;
        released = true;
        held.count -= 1;
        if (held.count > 0) return;
        this.#held.delete(key);
        this.#close(held.value);
      },
    };
  }

  values(): T[] {
    return [...this.#held.values()].map((held) => held.value);
  }
}
