import { ignore } from './error.ts';
/** A counted claim on a shared resource. `Released` is the result of giving it back. */
export interface Lease<T, Released = Promise<void>> {
  readonly value: T;
  /** Gives the claim back; calling it again does nothing. The last release closes the resource. */
  release(): Released;
}

/** A lease of a resource that opens and closes synchronously. */
export type InstantLease<T> = Lease<T, void>;

/**
 * Counts the claims on shared resources. `Closed` is what closing one returns; a release that closes nothing
 * returns undefined.
 */
export class InstantLeases<T, Closed = void> {
  readonly #held = new Map<string, { readonly value: T; count: number }>();
  readonly #close: (value: T) => Closed;

  constructor(close: (value: T) => Closed) {
    this.#close = close;
  }

  /** Claims the resource named `key`. Opens it if nobody holds it. */
  acquire(key: string, open: () => T): Lease<T, Closed | undefined> {
    const held = this.#held.get(key) ?? { value: open(), count: 0 };
    this.#held.set(key, held);
    held.count += 1;
    let released = false;
    return {
      value: held.value,
      release: () => {
        if (released) return undefined;
        released = true;
        held.count -= 1;
        if (held.count > 0) return undefined;
        this.#held.delete(key);
        return this.#close(held.value);
      },
    };
  }

  has(key: string): boolean {
    return this.#held.has(key);
  }

  values(): T[] {
    return [...this.#held.values()].map((held) => held.value);
  }
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

/**
 * Shared resources that outlive a configuration: listeners by address, histories by location, key caches by
 * URL. A reload takes its leases before the old configuration releases its own, so a resource that both use
 * is never closed in between.
 */
export class LeasePool<T> {
  readonly #leases: InstantLeases<Promise<T>, Promise<void>>;
  readonly #overlap: boolean;
  /** What must be closed before it is opened again. These promises never reject. */
  readonly #closing = new Map<string, Promise<unknown>>();

  constructor(
    close: (value: T) => void | Promise<void>,
    { overlap = true }: LeasePoolOptions = {},
  ) {
    this.#leases = new InstantLeases(async (opening) => close(await opening));
    this.#overlap = overlap;
  }

  /** Whether the resource is open, opening, or must be closed before it is opened again. */
  has(key: string): boolean {
    return this.#leases.has(key) || this.#closing.has(key);
  }

  /** The resources that are open, or that open successfully now. */
  async opened(): Promise<readonly T[]> {
    const opening = await Promise.allSettled(this.#leases.values());
    return opening.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  }

  /**
   * Claims the resource named `key` and opens it if nobody holds it. A failed attempt to open it is not
   * remembered, so the next call tries again.
   *
   * @throws what `open` throws
   */
  async acquire(key: string, open: () => T | Promise<T>): Promise<Lease<T>> {
    while (this.#closing.has(key)) await this.#closing.get(key);
    const lease = this.#leases.acquire(key, () => Promise.resolve().then(open));
    try {
      return { value: await lease.value, release: () => this.#release(key, lease.release()) };
    } catch (error) {
      lease.release()?.catch(ignore);
      throw error;
    }
  }

  async #release(key: string, closed: Promise<void> | undefined): Promise<void> {
    if (closed === undefined) return;
    if (!this.#overlap) {
      const forget = (): void => void this.#closing.delete(key);
      this.#closing.set(key, closed.then(forget, forget));
    }
    await closed;
  }
}
