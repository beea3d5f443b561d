// No turn of the event loop is unbounded. Whatever grows with a client's input, with the log or
// with the number of streams is a task of the process's one scheduler. Generators that yield when
// their budget is used up keep such code readable.

/**
 * Steps of work in one turn of the event loop. A step is the smallest thing that is counted, about
 * 10 ns, so a turn is about a millisecond; a cost that is counted only afterwards may exceed it once.
 */
export const TURN_STEPS = 100_000;

/** The least that a task gets when its turn comes, in steps. */
const MIN_SHARE = 2_000;
/** What a computation may use before it is queued, in steps; all of one turn together get what a turn has. */
const HEAD_START = 10_000;

/** What a task may still use of its turn, in steps. It may go below 0, since a cost is often known only afterwards. */
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

/** For a computation that is bounded by itself, so that its cost is not counted. */
export function unlimitedBudget(): Budget {
  return new Budget(Number.POSITIVE_INFINITY);
}

/** A task of any length, done a little at a time. */
export interface Task {
  /** Works until nothing is left of `budget` or there is nothing more to do; true asks to go on. Must not throw. */
  run(budget: Budget): boolean;
}

/** A computation that yields whenever nothing is left of its budget. */
export type Computation<T> = (budget: Budget) => Generator<void, T, void>;

/** The result of a computation with an unlimited budget, so that it never yields. */
export function completed<T>(computation: Generator<void, T, void>): T {
  const { done, value } = computation.next();
  if (done !== true) throw new TypeError('a computation with an unlimited budget did not end');
  return value;
}

/**
 * Shares each turn of the event loop among all that have much to do: in rounds, each with an equal
 * part of the turn's steps. Between the turns the loop sees to its connections.
 */
export class Scheduler {
  readonly #waiting = new Set<Task>();
  readonly #later: (turn: () => void) => void;
  readonly #budget = new Budget(0);
  #scheduled = false;
  /** What computations may still use in this turn without being queued. */
  #headStart = TURN_STEPS;

  /** @param later calls back in the next turn of the event loop */
  constructor(later: (turn: () => void) => void = setImmediate) {
    this.#later = later;
  }

  /** Lets `work` run from the next turn on, until it has nothing more to do. Adding it twice is adding it once. */
  add(work: Task): void {
    this.#waiting.add(work);
    this.#schedule();
  }

  /**
   * The result of a computation: at once when it is short, as a promise when it takes its turns.
   *
   * @throws (or rejects with) what it throws
   */
  compute<T>(computation: Computation<T>): T | Promise<T> {
    const budget = new Budget(Math.min(HEAD_START, this.#headStart));
    const before = budget.left;
    const steps = computation(budget);
    if (before > 0) {
      // The head start is given again in the next turn.
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
            // It holds the budget that it was given, so that is filled again.
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
