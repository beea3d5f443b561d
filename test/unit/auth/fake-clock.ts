import type { Clock } from '../../../src/kernel/clock.ts';

/** A clock that moves only when it is told to, and runs what is due. */
export class FakeClock implements Clock {
  #nowMs: number;
  #timers: { readonly dueMs: number; readonly task: () => void }[] = [];

  constructor(nowMs: number) {
    this.#nowMs = nowMs;
  }

  /** How many timers are set. */
  get waiting(): number {
    return this.#timers.length;
  }

  now(): number {
    return this.#nowMs;
  }

  monotonic(): number {
    return this.#nowMs;
  }

  after(delayMs: number, task: () => void): () => void {
    const timer = { dueMs: this.#nowMs + delayMs, task };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  advance(byMs: number): void {
    this.#nowMs += byMs;
    const due = this.#timers.filter(({ dueMs }) => dueMs <= this.#nowMs);
    this.#timers = this.#timers.filter((timer) => !due.includes(timer));
    for (const { task } of due) task();
  }
}
