import type { WaitLimit } from '../http/exchange.ts';

/**
 * Watches waits that begin and end with every piece of a body. One timer is looked at when it
 * fires, so that a piece sets none.
 */
export class WaitWatch {
  readonly #limit: WaitLimit;
  readonly #end: (error: Error) => void;
  #isWaiting = false;
  #since = 0;
  #cancel: (() => void) | null = null;

  /** `end` is called with what `limit` makes of a wait that was too long. */
  constructor(limit: WaitLimit, end: (error: Error) => void) {
    this.#limit = limit;
    this.#end = end;
  }

  begin(): void {
    this.#isWaiting = true;
    this.#since = this.#limit.clock.monotonic();
    if (this.#cancel === null) this.#lookAfter(this.#limit.limitMs);
  }

  end(): void {
    this.#isWaiting = false;
  }

  /** Leaves no timer behind. */
  close(): void {
    this.#isWaiting = false;
    this.#cancel?.();
    this.#cancel = null;
  }

  #lookAfter(delayMs: number): void {
    this.#cancel = this.#limit.clock.after(delayMs, () => this.#look());
  }

  #look(): void {
    this.#cancel = null;
    if (!this.#isWaiting) return;
    const { clock, limitMs, over } = this.#limit;
    const leftMs = this.#since + limitMs - clock.monotonic();
    if (leftMs > 0) this.#lookAfter(leftMs);
    else this.#end(over());
  }
}
