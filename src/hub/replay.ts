import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { Budget, type Scheduler, type Task } from '../kernel/scheduler.ts';
import { readMatchers } from './grants.ts';
import type { LogPage, LogReader } from './log-reader.ts';
import { MAX_STREAM_STEPS } from './template-index.ts';
import { anyMatches, type GrantMatcher, type Progress } from './matcher.ts';
import type { PreparedUpdate } from './event-stream.ts';
import type { Subscriber } from './subscriber.ts';

/** What a replay queues before the connection has to take it, in bytes; one event may exceed it. */
const REPLAY_BYTES = 64 * 1024;
/** What one stream gets before it is the next one's turn, in steps. */
const TURN_STEPS = 5_000;
/** What looking at an entry of the log costs, in steps. */
const ENTRY_STEPS = 10;
/** What reading a page of the log costs, in steps, where nobody else reads it at the same time. */
const PAGE_STEPS = 20_000;
/** What handing the event of an entry on costs at most per character of its data, in steps. */
const STEPS_PER_CHARACTER = 0.2;

/** How far a subscriber has come in the log. */
interface CatchingUp {
  readonly subscriber: Subscriber;
  page: LogPage | 'reading' | null;
  /** The entry of the page that is next, and what is known of it. */
  index: number;
  /** Updates that it has been given. */
  delivered: number;
  /** Whether its matchers select the entry; null while that is being asked. */
  wanted: true | null;
  readonly progress: Progress;
  /** All that grants reading, once that was needed. */
  readers: readonly GrantMatcher[] | null;
}

export interface ReplayKeeper {
  /** Position of the last entry that live subscribers have been shown or will be. */
  tail(): number;
  deliver(subscriber: Subscriber, event: Buffer): void;
  /** The subscriber has seen all up to {@link tail}: it goes on with the live ones. */
  caughtUp(subscriber: Subscriber, delivered: number): void;
  failed(subscriber: Subscriber): void;
  /** Whether it may be given presence events. */
  mayReadPresence(subscriber: Subscriber): boolean;
  /** What the subscriber has not seen was evicted before it could be read. */
  overtaken(subscriber: Subscriber): void;
}

/**
 * All replays of a hub, one schedule for them: each reads the log at the pace at which its client
 * takes it, and all together as far as a slice goes.
 */
export class Replay implements Task {
  readonly #reader: LogReader;
  readonly #keeper: ReplayKeeper;
  readonly #scheduler: Scheduler;
  readonly #log: Logger;
  readonly #all = new Map<Subscriber, CatchingUp>();
  /** Those that can go on at once. */
  readonly #ready = new Set<CatchingUp>();
  readonly #budget = new Budget(0);

  constructor(reader: LogReader, keeper: ReplayKeeper, scheduler: Scheduler, log: Logger) {
    this.#reader = reader;
    this.#keeper = keeper;
    this.#scheduler = scheduler;
    this.#log = log;
  }

  /** Lets a subscriber read from its position on. */
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

  /** Everything queued for a subscriber has been written. */
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
    const own = this.#budget;
    while (!budget.isSpent) {
      const [state] = this.#ready;
      if (state === undefined) return false;
      this.#ready.delete(state);
      own.left = Math.min(TURN_STEPS, budget.left);
      const before = own.left;
      if (this.#advance(state, own)) this.#ready.add(state);
      budget.spend(Math.max(1, before - own.left));
    }
    return this.#ready.size > 0;
  }

  #resume(state: CatchingUp): void {
    if (state.page === 'reading') return;
    this.#ready.add(state);
    this.#scheduler.add(this);
  }

  /** True when it could go on at once: it waits neither for its client nor for the log. */
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
        // What the page has brought is written before more is read.
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
        this.#keeper.deliver(subscriber, event);
      }
      subscriber.position = entry.position;
      state.index += 1;
      state.wanted = null;
      begin(state.progress);
      if (subscriber.sendBuffer.bufferedBytes >= REPLAY_BYTES) return false;
    }
    return true;
  }

  /** Opens the page that is next, or leaves it to be read, or has no more to do. */
  #open(state: CatchingUp, budget: Budget): void {
    const { subscriber } = state;
    if (subscriber.position >= this.#keeper.tail()) {
      this.delete(subscriber);
      this.#keeper.caughtUp(subscriber, state.delivered);
      return;
    }
    const { begun } = this.#reader;
    const page = this.#reader.after(subscriber.position);
    if (this.#reader.begun > begun) budget.spend(PAGE_STEPS);
    if (!(page instanceof Promise)) {
      this.#enter(state, page);
      return;
    }
    state.page = 'reading';
    page.then(
      (read) => {
        this.#enter(state, read);
        if (this.#all.has(subscriber)) this.#resume(state);
      },
      (error: unknown) => {
        this.#log.error('Replay stopped: the history cannot be read', { error: messageOf(error) });
        this.#keeper.failed(subscriber);
      },
    );
  }

  /** A hole would stay unseen: the cursor of what comes behind it covers what was in it. */
  #enter(state: CatchingUp, page: LogPage): void {
    const { subscriber } = state;
    state.page = page;
    if (this.#isOvertaken(subscriber, page)) this.#keeper.overtaken(subscriber);
    else state.index = page.indexAfter(subscriber.position);
  }

  /** Before the first entry nothing was seen. What a store has lost when it failed over does not count. */
  #isOvertaken(subscriber: Subscriber, { evicted }: LogPage): boolean {
    const { position, knownGap } = subscriber;
    if (position > 0 && position < evicted.updates) return true;
    if (evicted.events <= Math.max(position, knownGap)) return false;
    return this.#keeper.mayReadPresence(subscriber);
  }

  /** Whether the subscriber wants the entry and may have it; null when nothing is left of the budget. */
  #selects(state: CatchingUp, { topics, update }: PreparedUpdate, budget: Budget): boolean | null {
    const { subscriber, progress } = state;
    if (state.wanted === null) {
      const { matchers } = subscriber.options;
      // As live delivery bounds it.
      const wanted = anyMatches(matchers, topics, progress, budget, MAX_STREAM_STEPS);
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
