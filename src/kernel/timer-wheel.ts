import type { Clock } from './clock.ts';

/** An entry of the wheel; give it back to {@link TimerWheel.cancel}. */
export interface WheelTimer {
  readonly task: () => void;
  /** The tick at which it is due. */
  due: number;
  cancelled: boolean;
}

const SLOTS = 512;

/**
 * Timers for thousands of connections on one system timer. Precision is one tick: a task runs at
 * most one tick late and never early. The system timer runs only while there are entries.
 */
export class TimerWheel {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #slots: Set<WheelTimer>[] = Array.from({ length: SLOTS }, () => new Set());
  #size = 0;
  #tick: number;
  #stop: (() => void) | undefined;

  constructor(clock: Clock, tickMs: number) {
    this.#clock = clock;
    this.#tickMs = tickMs;
    this.#tick = this.#currentTick();
  }

  /** Calls `task` once, `delayMs` from now. */
  after(delayMs: number, task: () => void): WheelTimer {
    if (this.#size === 0) this.#tick = this.#currentTick();
    const due = Math.ceil((this.#clock.monotonic() + delayMs) / this.#tickMs);
    const timer = { task, due: Math.max(due, this.#tick + 1), cancelled: false };
    this.#slot(timer.due).add(timer);
    this.#size += 1;
    this.#stop ??= this.#clock.after(this.#tickMs, this.#advance);
    return timer;
  }

  cancel(timer: WheelTimer): void {
    timer.cancelled = true;
    if (this.#slot(timer.due).delete(timer)) this.#size -= 1;
  }

  /** Forgets all timers and stops the system timer. */
  close(): void {
    for (const slot of this.#slots) slot.clear();
    this.#size = 0;
    this.#stop?.();
    this.#stop = undefined;
  }

  readonly #advance = (): void => {
    this.#stop = undefined;
    const now = this.#currentTick();
    // After a pause longer than one turn of the wheel each slot still needs only one visit.
    const first = Math.max(this.#tick + 1, now - SLOTS + 1);
    for (let tick = first; tick <= now; tick += 1) this.#expire(tick, now);
    this.#tick = now;
    if (this.#size > 0) this.#stop ??= this.#clock.after(this.#tickMs, this.#advance);
  };

  #expire(tick: number, now: number): void {
    const slot = this.#slot(tick);
    for (const timer of slot) {
      if (timer.due > now || timer.cancelled) continue;
      slot.delete(timer);
      this.#size -= 1;
      timer.task();
    }
  }

  #currentTick(): number {
    return Math.floor(this.#clock.monotonic() / this.#tickMs);
  }

  #slot(tick: number): Set<WheelTimer> {
    const slot = this.#slots[tick % SLOTS];
    if (slot === undefined) throw new RangeError(`no slot for tick ${tick}`);
    return slot;
  }
}
