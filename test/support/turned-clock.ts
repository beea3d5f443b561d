import type { Clock } from '../../src/kernel/clock.ts';

interface Entry {
  readonly due: number;
  readonly task: () => void;
  timer: NodeJS.Timeout;
}

/** The system's clock, for what waits on the network, that can be turned forward. */
export class TurnedClock implements Clock {
  #offset = 0;
  readonly #entries = new Set<Entry>();

  now(): number {
    return Date.now() + this.#offset;
  }

  monotonic(): number {
    return performance.now() + this.#offset;
  }

  after(delayMs: number, task: () => void): () => void {
    const due = this.monotonic() + delayMs;
    const entry: Entry = { due, task, timer: setTimeout(() => {}, 0) };
    this.#entries.add(entry);
    this.#schedule(entry);
    return () => {
      clearTimeout(entry.timer);
      this.#entries.delete(entry);
    };
  }

  /** Moves on, and runs what has come due by that. */
  turn(ms: number): void {
    this.#offset += ms;
    for (const entry of [...this.#entries].sort((a, b) => a.due - b.due)) this.#schedule(entry);
  }

  #schedule(entry: Entry): void {
    clearTimeout(entry.timer);
    const longest = 2 ** 31 - 1;
    const delay = Math.min(longest, Math.max(0, entry.due - this.monotonic()));
    entry.timer = setTimeout(() => {
      if (entry.due > this.monotonic() + 1) this.#schedule(entry);
      else {
        this.#entries.delete(entry);
        entry.task();
      }
    }, delay);
    entry.timer.unref();
  }
}
