import type { Lease } from './lease.ts';

/** A lease of what opens and closes at once. */
export type InstantLease<T> = Lease<T, void>;

/** {@link LeasePool} for resources that open and close at once. */
export class InstantLeases<T> {
  readonly #held = new Map<string, { readonly value: T; count: number }>();
  readonly #close: (value: T) => void;

  constructor(close: (value: T) => void) {
    this.#close = close;
  }

  acquire(key: string, open: () => T): InstantLease<T> {
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
