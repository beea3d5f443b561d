/**
 * Steps of work in one turn of the event loop. A step is the smallest thing that is counted, about
 * 10 ns, so a slice is about a millisecond; what is counted only afterwards may exceed it once.
 */
export const SLICE_STEPS = 100_000;

/** The least that a work gets when its turn comes, in steps. */
const MIN_SHARE = 2_000;
/** What a computation may use before it is queued, in steps; all of one turn get a slice together. */
const HEAD_START = 10_000;

/** What is left of a budget, in steps. Whoever works takes off what it costs; it may go below 0. */
export interface Meter {
  left: number;
}

/** For work that is bounded by itself, and nobody counts. */
export function unmetered(): Meter {
  return { left: Number.POSITIVE_INFINITY };
}

/** Work of any length, done a little at a time. */
export interface Work {
  /** Works until nothing is left of `meter` or there is nothing more to do; true asks to go on. Must not throw. */
  run(meter: Meter): boolean;
}

/** A computation that yields whenever nothing is left of its meter. */
export type Computation<T> = (meter: Meter) => Generator<void, T, void>;

/** The result of a computation that has an unmetered budget, so that it never yields. */
export function completed<T>(computation: Generator<void, T, void>): T {
  const { done, value } = computation.next();
  if (done !== true) throw new TypeError('an unmetered computation did not end');
  return value;
}

/**
 * Shares each turn of the event loop among all that have much to do: in rounds, each with an equal
 * part of one slice. Between the turns the loop sees to its connections.
 */
export class Slices {
  readonly #waiting = new Set<Work>();
  readonly #later: (turn: () => void) => void;
  readonly #meter: Meter = { left: 0 };
  #scheduled = false;
  /** What computations may still use in this turn without being queued. */
  #headStart = SLICE_STEPS;

  /** @param later calls back in the next turn of the event loop */
  constructor(later: (turn: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Lets `work` run from the next turn on, until it has nothing more to do. Adding it twice is adding it once. */
  add(work: Work): void {
    this.#waiting.add(work);
    this.#schedule();
  }

  /**
   * The result of a computation: at once when it is short, as a promise when it takes its turns.
   *
   * @throws (or rejects with) what it throws
   */
  compute<T>(computation: Computation<T>): T | Promise<T> {
    const meter: Meter = { left: Math.min(HEAD_START, this.#headStart) };
    const before = meter.left;
    const steps = computation(meter);
    if (before > 0) {
      // The head start is given anew in the next turn.
      this.#schedule();
      try {
        const { done, value } = steps.next();
        if (done === true) return value;
      } finally {
        this.#headStart -= before - meter.left;
      }
    }
    return new Promise<T>((resolve, reject) => {
      this.add({
        run: (share) => {
          try {
            // It holds the meter that it was given, so that is filled again.
            meter.left = share.left;
            const { done, value } = steps.next();
            share.left = meter.left;
            if (done === true) resolve(value);
            return done !== true;
          } catch (error) {
            reject(error);
            return false;
          }
        },
      });
    });
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#later(this.#turn);
  }

  readonly #turn = (): void => {
    this.#scheduled = false;
    this.#headStart = SLICE_STEPS;
    const meter = this.#meter;
    let left = SLICE_STEPS;
    while (left > 0) {
      const [work] = this.#waiting;
      if (work === undefined) return;
      const share = Math.max(MIN_SHARE, Math.floor(left / this.#waiting.size));
      this.#waiting.delete(work);
      meter.left = share;
      if (work.run(meter)) this.#waiting.add(work);
      left -= Math.max(1, share - meter.left);
    }
    if (this.#waiting.size > 0) this.#schedule();
  };
}
