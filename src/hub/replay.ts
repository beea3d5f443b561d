import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { Budget, type Scheduler, type Task } from '../kernel/scheduler.ts';
import type { DeliverEvent } from './fan-out.ts';
import { readMatchers } from './grants.ts';
import type { HistoryPage, HistoryReader } from './history-reader.ts';
import { anyMatches, type GrantMatcher, type Progress } from './matcher.ts';
import type { PreparedUpdate } from './event-stream.ts';
import type { Subscriber } from './subscriber.ts';

/** Bytes that a replay queues before the connection has to accept them. One event may exceed the limit. */
const REPLAY_BYTES = 24 * 1024;
/** Steps that one stream gets before the next one's turn. */
const TURN_STEPS = 5_000;
/** Cost of checking an entry of the history, in steps. */
const ENTRY_STEPS = 100;
/** Cost of reading a page of the history that no other stream reads at the same time, in steps. */
const PAGE_STEPS = 20_000;
/** Highest cost of handing on the event of an entry, per character of its data, in steps. */
const STEPS_PER_CHARACTER = 0.2;

/** Steps for each replay after which they pause, while updates are published. Many replays hardly pause. */
const PAUSE_AFTER_STEPS = 30_000;
/** Pauses that follow each other while an update is being stored. Then the replays continue nevertheless. */
const MAX_PAUSES = 4;
/** Updates count as being published for this long after the last one. */
const LIVE_MS = 1_000;

/** Progress of a subscriber in the history. */
interface CatchingUp {
  readonly subscriber: Subscriber;
  page: HistoryPage | 'reading' | null;
  /** The next entry of the page, and the state of its check. */
  index: number;
  /** Updates that the subscriber has received. */
  delivered: number;
  /** Whether its matchers select the entry; null while this is being checked. */
  wanted: true | null;
  readonly progress: Progress;
  /** Whether its grants allow the entry, if that had to be checked. */
  readers: readonly GrantMatcher[] | null;
}

export interface ReplayCallbacks {
  /** Position of the last entry that live subscribers have received or will receive. */
  tail(): number;
  /** Whether an update is being stored. */
  isStoring(): boolean;
  readonly deliver: DeliverEvent;
  /** The subscriber has received everything up to {@link tail} and becomes live. */
  caughtUp(subscriber: Subscriber, delivered: number): void;
  failed(subscriber: Subscriber): void;
  /** Whether it may receive presence events. */
  mayReadPresence(subscriber: Subscriber): boolean;
  /** Entries that the subscriber has not received were evicted before they could be read. */
  overtaken(subscriber: Subscriber): void;
}

/**
 * All replays of a hub in one schedule: each reads the history at the speed of its client, and all together
 * stay within their slice. While updates are published, a few replays also pause in between, and longer while the
 * history stores one. Otherwise an update would wait for the processor several times on its way, behind the replays
 * and behind the clients that receive them. If very many streams catch up, a long pause would let the history remove
 * what they have not read yet.
 */
export class Replay implements Task {
  readonly #reader: HistoryReader;
  readonly #callbacks: ReplayCallbacks;
  readonly #scheduler: Scheduler;
  readonly #monotonic: () => number;
  readonly #log: Logger;
  readonly #all = new Map<Subscriber, CatchingUp>();
  /** Replays that can continue at once. */
  readonly #ready = new Set<CatchingUp>();
  readonly #budget = new Budget(0);
  /** Steps since the last pause. */
  #stepsSincePause = 0;
  /** Pauses since the last steps. */
  #pauses = 0;
  /** The tail at the end of the last slice, null before the first, and the time at which it had changed. */
  #tail: number | null = null;
  #tailChangedMs = Number.NEGATIVE_INFINITY;

  /** @param monotonic the time in milliseconds */
  constructor(
    reader: HistoryReader,
    callbacks: ReplayCallbacks,
    scheduler: Scheduler,
    monotonic: () => number,
    log: Logger,
  ) {
    this.#reader = reader;
    this.#callbacks = callbacks;
    this.#scheduler = scheduler;
    this.#monotonic = monotonic;
    this.#log = log;
  }

  /** Starts the replay of a subscriber from its position. */
  add(subscriber: Subscriber): void {
    const state: CatchingUp = {
      subscriber,
      page: null,
      index: 0,
      delivered: 0,
      wanted: null,
      progress: { tried: 0, spent: 0 },
      readers: null,
    };
    this.#all.set(subscriber, state);
    this.#resume(state);
  }

  /** Everything that was queued for a subscriber has been written. */
  flushed(subscriber: Subscriber): void {
    const state = this.#all.get(subscriber);
    if (state !== undefined) this.#resume(state);
  }

  delete(subscriber: Subscriber): void {
    const state = this.#all.get(subscriber);
    if (state === undefined) return;
    this.#all.delete(subscriber);
    this.#ready.delete(state);
  }

  run(budget: Budget): boolean {
    if (this.#ready.size === 0) return false;
    if (this.#stepsSincePause === 0 && this.#pauses < MAX_PAUSES && this.#callbacks.isStoring())
      return this.#pause();
    this.#pauses = 0;
    const before = budget.left;
    this.#advanceAll(budget);
    this.#stepsSincePause += before - budget.left;
    const isLive = this.#isLive();
    const mayContinue = !isLive || this.#stepsSincePause < PAUSE_AFTER_STEPS * this.#all.size;
    return mayContinue ? this.#ready.size > 0 : this.#pause();
  }

  #pause(): false {
    this.#stepsSincePause = 0;
    this.#pauses += 1;
    this.#scheduler.addAfterPause(this);
    return false;
  }

  /** Whether updates are being published. */
  #isLive(): boolean {
    const tail = this.#callbacks.tail();
    const now = this.#monotonic();
    if (this.#tail !== null && tail !== this.#tail) this.#tailChangedMs = now;
    this.#tail = tail;
    return now - this.#tailChangedMs < LIVE_MS;
  }

  #advanceAll(budget: Budget): void {
    const own = this.#budget;
    while (!budget.isSpent) {
      const [state] = this.#ready;
      if (state === undefined) return;
      this.#ready.delete(state);
      own.left = Math.min(TURN_STEPS, budget.left);
      const before = own.left;
      if (this.#advance(state, own)) this.#ready.add(state);
      budget.spend(Math.max(1, before - own.left));
    }
  }

  #resume(state: CatchingUp): void {
    if (state.page === 'reading') return;
    this.#ready.add(state);
    this.#scheduler.add(this);
  }

  /** Returns true if it can continue at once, because it waits neither for its client nor for the history. */
  #advance(state: CatchingUp, budget: Budget): boolean {
    const { subscriber } = state;
    while (!budget.isSpent) {
      if (state.page === null) this.#open(state, budget);
      const { page } = state;
      if (page === null || page === 'reading' || subscriber.ended !== null) return false;
      const entry = page.entries[state.index];
      if (entry === undefined) {
        subscriber.position = Math.max(subscriber.position, page.until);
        state.page = null;
        // The events of this page are written before the next page is read.
        if (!subscriber.sendBuffer.isIdle) return false;
        continue;
      }
      budget.spend(ENTRY_STEPS);
      const prepared = page.prepared(state.index, entry);
      const selected = this.#selects(state, prepared, budget);
      if (selected === null) return true;
      if (selected) {
        const event = prepared.event(budget);
        if (event === null) return true;
        budget.spend(entry.update.data.length * STEPS_PER_CHARACTER);
        state.delivered += 1;
        this.#callbacks.deliver(subscriber, event, entry.update.private);
      }
      subscriber.position = entry.position;
      state.index += 1;
      state.wanted = null;
      begin(state.progress);
      // An event continues the replay when it is written. Without one, nothing would.
      if (selected && subscriber.sendBuffer.bufferedBytes >= REPLAY_BYTES) return false;
    }
    return true;
  }

  /** Opens the next page, starts to read it, or finishes the replay. */
  #open(state: CatchingUp, budget: Budget): void {
    const { subscriber } = state;
    if (subscriber.position >= this.#callbacks.tail()) {
      this.delete(subscriber);
      this.#callbacks.caughtUp(subscriber, state.delivered);
      return;
    }
    const { begun } = this.#reader;
    const page = this.#reader.after(subscriber.position, this.#all.size);
    if (this.#reader.begun > begun) budget.spend(PAGE_STEPS);
    if (!(page instanceof Promise)) return this.#enter(state, page);
    state.page = 'reading';
    page.then(
      (read) => {
        this.#enter(state, read);
        if (this.#all.has(subscriber)) this.#resume(state);
      },
      (error: unknown) => {
        this.#log.error('Replay stopped: the history cannot be read', { error: messageOf(error) });
        this.#callbacks.failed(subscriber);
      },
    );
  }

  /** The client could not see the gap, because the cursor of what follows covers it. */
  #enter(state: CatchingUp, page: HistoryPage): void {
    const { subscriber } = state;
    state.page = page;
    if (this.#isOvertaken(subscriber, page)) this.#callbacks.overtaken(subscriber);
    else state.index = page.indexAfter(subscriber.position);
  }

  /** A replay from the beginning misses nothing. What a store has lost in a failover does not count. */
  #isOvertaken(subscriber: Subscriber, { evicted }: HistoryPage): boolean {
    const { position, knownGap } = subscriber;
    if (position > 0 && position < evicted.updates) return true;
    if (evicted.events <= Math.max(position, knownGap)) return false;
    return this.#callbacks.mayReadPresence(subscriber);
  }

  /** Whether the subscriber wants the entry and may receive it; null if the budget is used up. */
  #selects(state: CatchingUp, { topics, update }: PreparedUpdate, budget: Budget): boolean | null {
    const { subscriber, progress } = state;
    if (state.wanted === null) {
      const { matchers } = subscriber.options;
      const wanted = anyMatches(matchers, topics, progress, budget, true);
      if (wanted !== true) return wanted;
      state.wanted = true;
      begin(progress);
    }
    if (!update.private) return true;
    state.readers ??= readMatchers(subscriber.options.grants);
    return anyMatches(state.readers, topics, progress, budget);
  }
}

function begin(progress: Progress): void {
  progress.tried = 0;
  progress.spent = 0;
}
