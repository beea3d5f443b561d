import type { Budget, Scheduler, Task } from '../kernel/scheduler.ts';
import { type DeliverEvent, FanOut, type InTurn } from './fan-out.ts';
import type { Subscriber } from './subscriber.ts';
import type { SubscriptionIndex } from './subscription-index.ts';
import type { Topic } from './topic.ts';
import type { HistoryEntry } from './transport.ts';
import type { Update } from './update.ts';
import { Batch } from './send-buffer.ts';

/**
 * Turns for which writing waits while updates are still handed to streams, so that one write carries
 * several updates. After that, handing out waits until everything that was queued is written.
 */
const HELD_TURNS = 8;
/** Turns after which handing out no longer waits: streams that catch up may always have more to write. */
const WRITING_TURNS = 512;
/** Characters of data and topics that may wait for delivery before publishers and the tail have to wait. */
const MAX_BACKLOG = 16 * 1024 * 1024;

export interface DeliveryCallbacks {
  readonly deliver: DeliverEvent;
  /** Called for each stream that has been written to. */
  flushed(subscriber: Subscriber): void;
}

/** Live delivery: it first finds the subscribers of the new updates, then writes once to each of them. */
export class Delivery implements Task {
  readonly flusher: Flusher;
  readonly #fanOut: FanOut;
  readonly #scheduler: Scheduler;
  #held = 0;
  #waiting: (() => void)[] = [];
  /** Callers that wait until earlier updates have been delivered, in order. */
  readonly #following: { readonly after: number; readonly go: () => void }[] = [];

  constructor(
    index: SubscriptionIndex,
    base: string,
    scheduler: Scheduler,
    nowMs: () => number,
    callbacks: DeliveryCallbacks,
  ) {
    this.#fanOut = new FanOut(index, base, callbacks.deliver);
    this.flusher = new Flusher(nowMs, (subscriber) => callbacks.flushed(subscriber));
    this.#scheduler = scheduler;
  }

  /** Remembers the parsed topics of an update that will arrive through the history. */
  know(update: Update, topics: readonly Topic[]): void {
    this.#fanOut.know(update, topics);
  }

  /** Delivers entries, after those that were added before. */
  dispatch(entries: readonly HistoryEntry[]): void {
    this.#fanOut.add(entries);
    this.#scheduler.add(this);
  }

  /**
   * Runs work after everything that was dispatched before, and before everything that is dispatched later.
   */
  inTurn(work: InTurn): void {
    this.#fanOut.addInTurn(work);
    this.#scheduler.add(this);
  }

  /** Schedules the write of what waits for a subscriber. */
  flush(subscriber: Subscriber): void {
    this.flusher.add(subscriber);
    this.#scheduler.add(this);
  }

  /** Whether the backlog exceeds its limit. */
  get isFull(): boolean {
    return this.#fanOut.backlogSize > MAX_BACKLOG;
  }

  /** Resolves when the backlog is within its limit; null if it already is. */
  backpressure(): Promise<void> | null {
    if (!this.isFull) return null;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Resolves when everything dispatched so far is queued for its subscribers; null if it already is. */
  delivered(): Promise<void> | null {
    const { delivered, waiting } = this.#fanOut;
    if (waiting === 0) return null;
    return new Promise((go) => this.#following.push({ after: delivered + waiting, go }));
  }

  run(budget: Budget): boolean {
    this.#held += 1;
    if (this.#held <= HELD_TURNS) {
      const isGivingOut = this.#fanOut.run(budget);
      this.#resumePublishers();
      this.#resumeFollowing();
      // Handing out more now would fill queues faster than they are written.
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

  #resumeFollowing(): void {
    const { delivered } = this.#fanOut;
    const after = (): number => this.#following[0]?.after ?? Number.POSITIVE_INFINITY;
    while (after() <= delivered) this.#following.shift()?.go();
  }

  #resumePublishers(): void {
    if (this.#waiting.length === 0 || this.isFull) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const go of waiting) go();
  }
}

/** Cost of visiting a stream that has nothing to write, in steps. */
const LOOK_STEPS = 5;
/** Finished streams that stay in the list before it is truncated. */
const MAX_SEEN_TO = 1_000;

/** Writes what waits for subscribers, in slices: each in its turn, with a single write for all its events. */
export class Flusher {
  /** The empty batch with which every queue begins, so that equal queues are shared. */
  empty = Batch.empty();
  readonly #flushed: (subscriber: Subscriber) => void;
  readonly #nowMs: () => number;
  #listed: Subscriber[] = [];
  #next = 0;
  /** Streams to write to before the round is over. */
  #ahead = 0;

  /**
   * @param nowMs monotonic time
   * @param flushed called for each stream that has been written to
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

  /** Begins a round. It is over when everything that waits now has been written. */
  beginRound(): void {
    this.#ahead = this.#listed.length - this.#next;
  }

  get hasEndedRound(): boolean {
    return this.#ahead === 0;
  }

  /** Works until the budget is used up; returns true if there is more to do. */
  run(budget: Budget): boolean {
    const now = this.#nowMs();
    while (!budget.isSpent) {
      const subscriber = this.#listed[this.#next];
      if (subscriber === undefined) {
        this.#listed = [];
        this.#next = 0;
        // Nobody can share the earlier queues any longer.
        this.empty = Batch.empty();
        return false;
      }
      this.#next += 1;
      // If some streams always wait, the list is never empty, so it is truncated here.
      if (this.#next >= MAX_SEEN_TO && this.#next * 2 >= this.#listed.length) {
        this.#listed = this.#listed.slice(this.#next);
        this.#next = 0;
        // Otherwise it would keep all batches that ever continued it.
        this.empty = Batch.empty();
      }
      const isOfRound = this.#ahead > 0;
      if (isOfRound) this.#ahead -= 1;
      if (this.flush(subscriber, now, budget) && isOfRound) this.beginRound();
    }
    return this.#next < this.#listed.length;
  }

  /** Writes what waits for one subscriber; returns true if some of it still waits. */
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
