// No turn of the event loop is unbounded. Work that grows with a client's input, with the history or with the
// number of streams is a task of the one scheduler of the process. Such tasks are generators that yield when
// their budget is used up, which keeps the code readable.

/**
 * Steps of work in one turn of the event loop. A step is the smallest unit of work, about 10 ns, so a turn
 * takes about a millisecond. Work whose cost is known only afterwards may exceed the limit once.
 */
export const TURN_STEPS = 100_000;

/** The smallest budget of a task in its turn, in steps. */
const MIN_SHARE = 2_000;
/**
 * Steps that a computation may use before it is queued. All computations of one turn share the steps of that
 * turn.
 */
const HEAD_START = 10_000;

/** How long a task pauses, the shortest time of a timer. */
const PAUSE_MS = 1;

/**
 * Steps that a task may still use in its turn. The number may fall below 0, because some costs are known only
 * afterwards.
 */
export class Budget {
  left: number;

  constructor(steps: number) {
    this.left = steps;
  }

  get isSpent(): boolean {
    return this.left <= 0;
  }

  spend(steps: number): void {
    this.left -= steps;
  }
}

/** For a computation that is bounded anyway, so its cost is not counted. */
export function unlimitedBudget(): Budget {
  return new Budget(Number.POSITIVE_INFINITY);
}

/** A task of any length that runs in slices. */
export interface Task {
  /**
   * Works until `budget` is used up or the task is finished. Returns true to be called again. Must not throw.
   */
  run(budget: Budget): boolean;
}

/** A computation that yields whenever its budget is used up. */
export type Computation<T> = (budget: Budget) => Generator<void, T, void>;

/** Runs a computation with an unlimited budget, so that it never yields, and returns its result. */
export function completed<T>(computation: Generator<void, T, void>): T {
  const { done, value } = computation.next();
  if (done !== true) throw new TypeError('a computation with an unlimited budget did not end');
  return value;
}

/**
 * Shares each turn of the event loop among all long tasks: in rounds, each task gets an equal part of the
 * turn's steps. Between turns, the event loop handles its connections.
 */
export class Scheduler {
  readonly #waiting = new Set<Task>();
  readonly #pausing = new Set<Task>();
  readonly #later: (turn: () => void) => void;
  readonly #afterPause: (wake: () => void) => void;
  readonly #budget = new Budget(0);
  #scheduled = false;
  /** Steps that computations may still use in this turn without being queued. */
  #headStart = TURN_STEPS;

  /**
   * @param later calls its argument in the next turn of the event loop
   * @param afterPause calls its argument after {@link PAUSE_MS}
   */
  constructor(
    later: (turn: () => void) => void = setImmediate,
    afterPause: (wake: () => void) => void = (wake) => setTimeout(wake, PAUSE_MS),
  ) {
    this.#later = later;
    this.#afterPause = afterPause;
  }

  /**
   * Runs `work` from the next turn until it is finished. Adding it twice has no further effect, and a task that
   * pauses runs after its pause.
   */
  add(work: Task): void {
    if (this.#pausing.has(work)) return;
    this.#waiting.add(work);
    this.#schedule();
  }

  /** Runs `work` after a pause, in which other work and other processes get the processor. */
  addAfterPause(work: Task): void {
    if (this.#pausing.size === 0) this.#afterPause(this.#wake);
    this.#pausing.add(work);
  }

  /**
   * Runs a computation. Returns its result at once if it is short, and a promise if it needs several turns.
   *
   * @throws (or rejects with) what the computation throws
   */
  compute<T>(computation: Computation<T>): T | Promise<T> {
    const budget = new Budget(Math.min(HEAD_START, this.#headStart));
    const before = budget.left;
    const steps = computation(budget);
    if (before > 0) {
      // Each turn begins with a full allowance.
      this.#schedule();
      try {
        const { done, value } = steps.next();
        if (done === true) return value;
      } finally {
        this.#headStart -= before - budget.left;
      }
    }
    return new Promise<T>((resolve, reject) => {
      this.add({
        run: (share) => {
          try {
            // The generator keeps a reference to its budget object, so the same object is filled again.
            budget.left = share.left;
            const { done, value } = steps.next();
            share.left = budget.left;
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

  readonly #wake = (): void => {
    for (const work of this.#pausing) this.#waiting.add(work);
    this.#pausing.clear();
    this.#schedule();
  };

  readonly #turn = (): void => {
    this.#scheduled = false;
    this.#headStart = TURN_STEPS;
    const budget = this.#budget;
    let left = TURN_STEPS;
    while (left > 0) {
      const [work] = this.#waiting;
      if (work === undefined) return;
      const share = Math.max(MIN_SHARE, Math.floor(left / this.#waiting.size));
      this.#waiting.delete(work);
      budget.left = share;
      if (work.run(budget)) this.#waiting.add(work);
      left -= Math.max(1, share - budget.left);
    }
    if (this.#waiting.size > 0) this.#schedule();
  };
}
