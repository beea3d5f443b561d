import type { Clock } from './clock.ts';
import { Histogram, SECONDS } from './measures.ts';

/** How often it is looked whether the event loop keeps time. */
const TICK_MS = 100;
/** A turn that began so much too late makes the process late… */
export const MAX_DELAY_MS = 1000;
/** …for so long after it. */
export const LATE_FOR_MS = 5000;

/**
 * Watches how late the turns of the event loop begin. Node's own histogram is emptied by whoever
 * reads it, which two who watch cannot share.
 */
export class LoopWatch {
  readonly delay = new Histogram(SECONDS);
  readonly #clock: Clock;
  #dueMs: number;
  #lateUntilMs = Number.NEGATIVE_INFINITY;
  #cancel: () => void;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#dueMs = clock.monotonic() + TICK_MS;
    this.#cancel = clock.after(TICK_MS, () => this.#tick());
  }

  /** Whether the loop is late now, or was a moment ago. */
  get isLate(): boolean {
    const now = this.#clock.monotonic();
    return now < this.#lateUntilMs || now - this.#dueMs > MAX_DELAY_MS;
  }

  close(): void {
    this.#cancel();
  }

  #tick(): void {
    const now = this.#clock.monotonic();
    const delayMs = Math.max(0, now - this.#dueMs);
    this.delay.observe(delayMs / 1000);
    if (delayMs > MAX_DELAY_MS) this.#lateUntilMs = now + LATE_FOR_MS;
    this.#dueMs = now + TICK_MS;
    this.#cancel = this.#clock.after(TICK_MS, () => this.#tick());
  }
}
