import type { Clock } from '../kernel/clock.ts';

export interface Rate {
  /** What may be taken at once. */
  readonly burst: number;
  /** What comes back. */
  readonly perSecond: number;
}

/** How often something may still happen (a token bucket). */
export class Budget {
  readonly #rate: Rate;
  readonly #clock: Clock;
  #left: number;
  #countedAt: number;

  constructor(rate: Rate, clock: Clock) {
    this.#rate = rate;
    this.#clock = clock;
    this.#left = rate.burst;
    this.#countedAt = clock.monotonic();
  }

  /** Takes one; false when nothing is left. */
  take(): boolean {
    const now = this.#clock.monotonic();
    const back = ((now - this.#countedAt) / 1000) * this.#rate.perSecond;
    this.#countedAt = now;
    this.#left = Math.min(this.#rate.burst, this.#left + back);
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
