import type { Clock } from '../kernel/clock.ts';

/** Bursts in progress. Beyond this number, each change is an update of its own. */
const MAX_BURSTS = 10_000;

/**
 * The first change of a burst is announced at once. Those that follow within the window are announced
 * together at its end. So the first change is not delayed, and the last one is not lost.
 */
export class Debouncer<T> {
  readonly #windowMs: number;
  readonly #clock: Clock;
  /** The combined change that waits for the end of each burst's window; null if there is none. */
  readonly #waiting = new Map<string, { task: (() => Promise<void>) | null; value: T | null }>();
  #isClosed = false;

  constructor(windowMs: number, clock: Clock) {
    this.#windowMs = windowMs;
    this.#clock = clock;
  }

  /**
   * Returns whether the change is to be announced now. If not, `later` is called at the end of the window
   * with all changes since the first, combined by `merge`.
   */
  begins(
    key: string,
    value: T,
    merge: (one: T, other: T) => T,
    later: (all: T) => Promise<void>,
  ): boolean {
    if (this.#windowMs === 0 || this.#isClosed) return true;
    const burst = this.#waiting.get(key);
    if (burst === undefined) {
      if (this.#waiting.size < MAX_BURSTS) this.#open(key);
      return true;
    }
    const all = burst.value === null ? value : merge(burst.value, value);
    burst.value = all;
    burst.task = () => later(all);
    return false;
  }

  /**
   * Announces the waiting changes. From now on, every change is announced at once, because the process may
   * end before the end of a window.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    const tasks = [...this.#waiting.values()].flatMap(({ task }) => task ?? []);
    this.#waiting.clear();
    await Promise.all(tasks.map((task) => task()));
  }

  #open(key: string): void {
    const burst = { task: null, value: null };
    this.#waiting.set(key, burst);
    this.#clock.after(this.#windowMs, () => this.#end(key));
  }

  #end(key: string): void {
    const task = this.#waiting.get(key)?.task ?? null;
    this.#waiting.delete(key);
    if (task === null) return;
    // A change that comes right after this one belongs to the next window.
    this.#open(key);
    void task();
  }
}
