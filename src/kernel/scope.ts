import type { Lease } from './lease.ts';

type Cleanup = () => void | Promise<void>;

/**
 * A stack of cleanup functions. Code that opens a resource registers how to close it on the same line.
 * `close` runs the functions in reverse order, all of them even if one throws.
 */
export class Scope {
  readonly #cleanups: Cleanup[] = [];
  #closing: Promise<void> | undefined;

  /** Registers a cleanup function. If the scope is already closing, it runs at once. */
  defer(cleanup: Cleanup): void {
    if (this.#closing === undefined) this.#cleanups.push(cleanup);
    else this.#closing = this.#closing.then(cleanup);
  }

  /** Registers the closing of `resource` and returns it. */
  use<T extends { close(): void | Promise<void> }>(resource: T): T {
    this.defer(() => resource.close());
    return resource;
  }

  /** Registers the release of a lease and returns what it is for. */
  hold<T>(lease: Lease<T, void | Promise<void>>): T {
    this.defer(() => lease.release());
    return lease.value;
  }

  /**
   * Runs all cleanup functions. Another call returns the same promise.
   *
   * @throws AggregateError if some of them failed; the others ran nevertheless
   */
  close(): Promise<void> {
    this.#closing ??= this.#unwind();
    return this.#closing;
  }

  async #unwind(): Promise<void> {
    const failures: unknown[] = [];
    for (let next = this.#cleanups.pop(); next !== undefined; next = this.#cleanups.pop()) {
      try {
        await next();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, 'cleanup failed');
  }
}
