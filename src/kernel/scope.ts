type Cleanup = () => void | Promise<void>;

/**
 * A stack of cleanups. Whoever opens something registers its closing on the same line; `close`
 * runs them last-in first-out, all of them even when one throws.
 */
export class Scope {
  readonly #cleanups: Cleanup[] = [];
  #closing: Promise<void> | undefined;

  /** Registers a cleanup. On a scope that is already closing it runs at once. */
  defer(cleanup: Cleanup): void {
    if (this.#closing === undefined) this.#cleanups.push(cleanup);
    else this.#closing = this.#closing.then(cleanup);
  }

  /** Registers the closing of `resource` and returns it. */
  use<T extends { close(): void | Promise<void> }>(resource: T): T {
    this.defer(() => resource.close());
    return resource;
  }

  /**
   * Runs every cleanup. Calling it again returns the same promise.
   *
   * @throws AggregateError when cleanups failed; the others ran nevertheless.
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
