import type { Clock } from '../kernel/clock.ts';

/** Bursts that are under way. Beyond it each change is an update of its own. */
const MAX_BURSTS = 10_000;

/**
 * The first of a burst is announced at once, what follows within the window together at its end: so
 * nobody waits for the first change, and nobody misses the last.
 */
export class Debouncer<T> {
  readonly #windowMs: number;
  readonly #clock: Clock;
  /** What waits for the end of each burst's window; null for nothing. */
  readonly #waiting = new Map<string, { task: (() => Promise<void>) | null; value: T | null }>();
  #isClosed = false;

  constructor(windowMs: number, clock: Clock) {
    this.#windowMs = windowMs;
    this.#clock = clock;
  }

  /**
   * Says whether the change is to be announced now. If not, `later` is called at the end of the
   * window with all that came since the first, as `merge` has made it one.
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

  /** Announces what waits, and from now on everything at once: nobody may be there at a window's end. */
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
    // What comes right after this one belongs to the next window.
    this.#open(key);
    void task();
  }
}
