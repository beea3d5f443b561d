import type { Clock } from './clock.ts';

/** A timer. The owner's object is itself the entry of the wheel, so that a timer costs no further object. */
export interface WheelTimer {
  /** Used by the wheel: the tick at which the timer expires, or 0 if it is not in a wheel. */
  dueTick: number;
  /** Called once when the timer expires. */
  expire(): void;
}

/** Precision of all timers in a wheel, in milliseconds. */
const TICK_MS = 50;
const SLOTS = 512;
/**
 * Timers that expire in one turn of the event loop. Further timers of the same tick expire in the next turns.
 */
const EXPIRED_AT_ONCE = 250;

/**
 * Timers for thousands of connections on one system timer, with one wheel per process. The precision is one
 * tick of 50 ms. A timer never expires early, and more than one tick late only if more than 250 expire
 * together. The system timer runs only while the wheel has entries.
 */
export class TimerWheel {
  readonly #clock: Clock;
  readonly #slots: Set<WheelTimer>[] = Array.from({ length: SLOTS }, () => new Set());
  #size = 0;
  /** The last tick that has been handled completely. */
  #tick: number;
  #stop: (() => void) | undefined;
  #isAdvancing = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#tick = this.#currentTick();
  }

  /** Lets `timer` expire `delayMs` from now. This replaces its former expiry. */
  arm(timer: WheelTimer, delayMs: number): void {
    this.cancel(timer);
    // An empty wheel has nothing to catch up on. While it advances, the tick is still being handled: the timer that
    // expires now may be the last one, and may be set again for the next tick.
    if (this.#size === 0 && !this.#isAdvancing) this.#tick = this.#currentTick();
    const due = Math.ceil((this.#clock.monotonic() + delayMs) / TICK_MS);
    timer.dueTick = Math.max(due, this.#tick + 1, 1);
    this.#slot(timer.dueTick).add(timer);
    this.#size += 1;
    this.#stop ??= this.#clock.after(TICK_MS, this.#advance);
  }

  cancel(timer: WheelTimer): void {
    if (timer.dueTick === 0) return;
    this.#slot(timer.dueTick).delete(timer);
    timer.dueTick = 0;
    this.#size -= 1;
    if (this.#size > 0) return;
    this.#stop?.();
    this.#stop = undefined;
  }

  readonly #advance = (): void => {
    this.#stop = undefined;
    const now = this.#currentTick();
    let left = EXPIRED_AT_ONCE;
    // Even after a pause longer than one revolution, each slot needs only one visit.
    this.#tick = Math.max(this.#tick, now - SLOTS);
    this.#isAdvancing = true;
    try {
      while (this.#tick < now && left > 0) {
        left = this.#expire(this.#tick + 1, now, left);
        if (left > 0) this.#tick += 1;
      }
    } finally {
      this.#isAdvancing = false;
    }
    if (this.#size > 0) this.#stop ??= this.#clock.after(left > 0 ? TICK_MS : 0, this.#advance);
  };

  /**
   * Expires the timers of the slot of `tick` that are due, and returns how many more may expire in this turn.
   */
  #expire(tick: number, now: number, most: number): number {
    const slot = this.#slot(tick);
    let left = most;
    for (const timer of slot) {
      if (timer.dueTick > now) continue;
      if (left === 0) return 0;
      left -= 1;
      this.cancel(timer);
      timer.expire();
    }
    return left;
  }

  #currentTick(): number {
    return Math.floor(this.#clock.monotonic() / TICK_MS);
  }

  #slot(tick: number): Set<WheelTimer> {
    const slot = this.#slots[tick % SLOTS];
    if (slot === undefined) throw new RangeError(`no slot for tick ${tick}`);
    return slot;
  }
}
