interface Holding<T> {
  readonly value: Promise<T>;
  count: number;
  /** Settles when the resource is closed; null while it is held. It never rejects. */
  closed: Promise<void> | null;
}

interface LeasePoolOptions {
  /**
   * Whether a resource may be opened again while it is still closing. Without this, `acquire` waits until it
   * is closed.
   *
   * @default true
   */
  readonly overlap?: boolean;
}

/** A counted claim on a shared resource. `Released` is the result of giving it back. */
export interface Lease<T, Released = Promise<void>> {
  readonly value: T;
  /** Gives the claim back; calling it again does nothing. The last release closes the resource. */
  release(): Released;
}

/**
 * Shared resources that outlive a configuration: listeners by address, histories by location, key caches by
 * URL. A reload takes its leases before the old configuration releases its own, so a resource that both use
 * is never closed in between.
 */
export class LeasePool<T> {
  readonly #holdings = new Map<string, Holding<T>>();
  readonly #close: (value: T) => void | Promise<void>;
  readonly #overlap: boolean;

  constructor(
    close: (value: T) => void | Promise<void>,
    { overlap = true }: LeasePoolOptions = {},
  ) {
    this.#close = close;
    this.#overlap = overlap;
  }

  /** Whether the resource is open or opening. */
  has(key: string): boolean {
    return this.#holdings.has(key);
  }

  /**
   * Claims the resource named `key` and opens it if nobody holds it. A failed attempt to open it is not
   * remembered, so the next call tries again.
   *
   * @throws what `open` throws
   */
  async acquire(key: string, open: () => T | Promise<T>): Promise<Lease<T>> {
    let holding = this.#holdings.get(key);
    while (holding !== undefined && holding.closed !== null) {
      await holding.closed;
      holding = this.#holdings.get(key);
    }
    if (holding === undefined) {
      holding = { value: Promise.resolve().then(open), count: 0, closed: null };
      this.#holdings.set(key, holding);
    }
    holding.count += 1;
    const held = holding;
    try {
      const value = await held.value;
      let released = false;
      return {
        value,
        release: async () => {
          if (released) return;
          released = true;
          await this.#release(key, held);
        },
      };
    } catch (error) {
      if (this.#holdings.get(key) === held) this.#holdings.delete(key);
      throw error;
    }
  }

  async #release(key: string, holding: Holding<T>): Promise<void> {
    holding.count -= 1;
    if (holding.count > 0) return;
    const forget = (): void => {
      if (this.#holdings.get(key) === holding) this.#holdings.delete(key);
    };
    if (this.#overlap) forget();
    const closing = holding.value.then((value) => this.#close(value));
    holding.closed = closing.then(forget, forget);
    await closing;
  }
}

/** A lease of a resource that opens and closes synchronously. */
export type InstantLease<T> = Lease<T, void>;

/** {@link LeasePool} for resources that open and close synchronously. */
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
