import type { Budget } from '../kernel/scheduler.ts';
import { Batch } from './batch.ts';
import type { Subscriber } from './subscriber.ts';

/** What looking at a stream costs when there is nothing to write, in steps. */
const LOOK_STEPS = 5;
/** Streams that stay listed though they have been seen to, before they are cut off. */
const MAX_SEEN_TO = 1_000;

/** Writes what waits for subscribers, in slices: each in its turn, with one write for all that waits. */
export class Flusher {
  /** What every queue begins with, so that equal queues are shared while they are filled. */
  empty = Batch.empty();
  readonly #flushed: (subscriber: Subscriber) => void;
  readonly #nowMs: () => number;
  #listed: Subscriber[] = [];
  #next = 0;
  /** Those to be seen to until the round is over. */
  #ahead = 0;

  /**
   * @param nowMs monotonic
   * @param flushed told of each that has been seen to
   */
  constructor(nowMs: () => number, flushed: (subscriber: Subscriber) => void) {
    this.#nowMs = nowMs;
    this.#flushed = flushed;
  }

  add(subscriber: Subscriber): void {
    const { sendBuffer } = subscriber;
    if (sendBuffer.isListed) return;
    sendBuffer.isListed = true;
    this.#listed.push(subscriber);
  }

  /** Begins a round: it is over when all that waits now has been written, whatever else comes. */
  beginRound(): void {
    this.#ahead = this.#listed.length - this.#next;
  }

  get hasEndedRound(): boolean {
    return this.#ahead === 0;
  }

  /** Works as far as the budget goes; true when there is more to do. */
  run(budget: Budget): boolean {
    const now = this.#nowMs();
    while (!budget.isSpent) {
      const subscriber = this.#listed[this.#next];
      if (subscriber === undefined) {
        this.#listed = [];
        this.#next = 0;
        // Nobody shares what was queued before any more.
        this.empty = Batch.empty();
        return false;
      }
      this.#next += 1;
      // Where some always wait, the list is never empty.
      if (this.#next >= MAX_SEEN_TO && this.#next * 2 >= this.#listed.length) {
        this.#listed = this.#listed.slice(this.#next);
        this.#next = 0;
        // All that was ever begun with hangs on it.
        this.empty = Batch.empty();
      }
      const isOfRound = this.#ahead > 0;
      if (isOfRound) this.#ahead -= 1;
      if (this.flush(subscriber, now, budget) && isOfRound) this.beginRound();
    }
    return this.#next < this.#listed.length;
  }

  /** Writes what waits for one; true when some of it still does. */
  flush(subscriber: Subscriber, nowMs: number, budget: Budget): boolean {
    const { sendBuffer } = subscriber;
    sendBuffer.isListed = false;
    budget.spend(LOOK_STEPS);
    const isUnfinished = sendBuffer.flush(nowMs, budget);
    if (isUnfinished) this.add(subscriber);
    this.#flushed(subscriber);
    return isUnfinished;
  }
}
