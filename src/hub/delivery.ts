import type { Budget, Scheduler, Task } from '../kernel/scheduler.ts';
import { FanOut, type InTurn } from './fan-out.ts';
import type { Subscriber } from './subscriber.ts';
import type { SubscriptionIndex } from './subscription-index.ts';
import type { Topic } from './topic.ts';
import type { LogEntry } from './transport.ts';
import type { Update } from './update.ts';
import { Batch } from './batch.ts';

/**
 * Turns for which writing waits while updates are still handed to streams, so that one write carries
 * several updates. After that, handing out waits until everything that was queued is written.
 */
const HELD_TURNS = 8;
/** Turns after which handing out no longer waits: streams that catch up may always have more to write. */
const WRITING_TURNS = 512;
/** Characters of data and topics that may wait to be given out before publishers have to wait. */
const MAX_BACKLOG = 16 * 1024 * 1024;

export interface DeliveryKeeper {
  /** Gives an event to a subscriber that it concerns. */
  deliver(subscriber: Subscriber, event: Buffer): void;
  /** Told of each stream that has been seen to. */
  flushed(subscriber: Subscriber): void;
}

/** Live delivery: first whom the updates of the log concern, then one write for each of them. */
export class Delivery implements Task {
  readonly flusher: Flusher;
  readonly #fanOut: FanOut;
  readonly #scheduler: Scheduler;
  #held = 0;
  #waiting: (() => void)[] = [];
  /** Who waits for what was dispatched before, in order. */
  readonly #following: { readonly after: number; readonly go: () => void }[] = [];

  constructor(
    index: SubscriptionIndex,
    base: string,
    scheduler: Scheduler,
    nowMs: () => number,
    keeper: DeliveryKeeper,
  ) {
    this.#fanOut = new FanOut(index, base, (subscriber, event) =>
      keeper.deliver(subscriber, event),
    );
    this.flusher = new Flusher(nowMs, (subscriber) => keeper.flushed(subscriber));
    this.#scheduler = scheduler;
  }

  /** Remembers the topics of an update that will come by the log. */
  know(update: Update, topics: readonly Topic[]): void {
    this.#fanOut.know(update, topics);
  }

  /** Gives entries out, after those that were added before. */
  dispatch(entries: readonly LogEntry[]): void {
    this.#fanOut.add(entries);
    this.#scheduler.add(this);
  }

  /** Does some work when all that was dispatched before has been given out, and nothing of what comes. */
  inTurn(work: InTurn): void {
    this.#fanOut.addInTurn(work);
    this.#scheduler.add(this);
  }

  /** Has what waits for a subscriber written. */
  flush(subscriber: Subscriber): void {
    this.flusher.add(subscriber);
    this.#scheduler.add(this);
  }

  /** Resolves when no more waits to be given out than may; null when that is so. */
  backpressure(): Promise<void> | null {
    if (this.#fanOut.backlogSize <= MAX_BACKLOG) return null;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Resolves when what was dispatched so far waits for each whom it concerns; null when it does. */
  delivered(): Promise<void> | null {
    const { delivered, waiting } = this.#fanOut;
    if (waiting === 0) return null;
    return new Promise((go) => this.#following.push({ after: delivered + waiting, go }));
  }

  run(budget: Budget): boolean {
    this.#held += 1;
    if (this.#held <= HELD_TURNS) {
      const isGivingOut = this.#fanOut.run(budget);
      this.#makeRoom();
      this.#goOn();
      // What is given out meanwhile would lengthen queues faster than they are written.
      if (this.#held === HELD_TURNS) this.flusher.beginRound();
      if (isGivingOut) return true;
    }
    const isWriting = this.flusher.run(budget);
    if (!isWriting || this.#hasWrittenEnough()) this.#held = 0;
    return isWriting || this.#fanOut.waiting > 0;
  }

  #hasWrittenEnough(): boolean {
    if (this.#held < HELD_TURNS) return false;
    return this.flusher.hasEndedRound || this.#held >= HELD_TURNS + WRITING_TURNS;
  }

  #goOn(): void {
    const { delivered } = this.#fanOut;
    for (let next = this.#following[0]; next !== undefined && next.after <= delivered; ) {
      next.go();
      this.#following.shift();
      next = this.#following[0];
    }
  }

  #makeRoom(): void {
    if (this.#waiting.length === 0 || this.#fanOut.backlogSize > MAX_BACKLOG) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const go of waiting) go();
  }
}

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
