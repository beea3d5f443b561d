import type { Clock } from '../../src/kernel/clock.ts';

/** A clock that stands still until it is turned. */
export class TestClock implements Clock {
  #now: number;
  /** How far the system clock is from the one that is never set. */
  #setByMs = 0;
  #tasks: { readonly due: number; readonly task: () => void }[] = [];

  constructor(now = 1_700_000_000_000) {
    this.#now = now;
  }

  now(): number {
    return this.#now + this.#setByMs;
  }

  monotonic(): number {
    return this.#now;
  }

  /** How many timers are set. */
  get waiting(): number {
    return this.#tasks.length;
  }

  after(delayMs: number, task: () => void): () => void {
    const entry = { due: this.#now + delayMs, task };
    this.#tasks.push(entry);
    return () => {
      this.#tasks = this.#tasks.filter((one) => one !== entry);
    };
  }

  /** Moves on, running on the way what comes due. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const [next] = this.#tasks.filter(({ due }) => due <= end).sort((a, b) => a.due - b.due);
      if (next === undefined) break;
      this.#tasks = this.#tasks.filter((one) => one !== next);
      this.#now = Math.max(this.#now, next.due);
      next.task();
    }
    this.#now = end;
  }

  /** Somebody sets the system clock forward, or back if `ms` is negative. */
  setBy(ms: number): void {
    this.#setByMs += ms;
  }

  /** Time passes in which nothing runs. */
  stall(ms: number): void {
    this.#now += ms;
  }
}
