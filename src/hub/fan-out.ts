import { Budget } from '../kernel/scheduler.ts';
import { type Grants, ReadQuestion } from './grants.ts';
import { PreparedUpdate } from './event-stream.ts';
import type { Subscriber } from './subscriber.ts';
import type { SubscriptionIndex } from './subscription-index.ts';
import type { Topic } from './topic.ts';
import type { HistoryEntry } from './transport.ts';
import { type Update, updateSize } from './update.ts';

/** Cost of queueing an event for a subscriber, in steps. */
const VISIT_STEPS = 5;
/** Cost of starting the dispatch of an update, in steps. */
const DISPATCH_STEPS = 200;
/** Characters counted for an update in addition to its own. */
const UPDATE_OVERHEAD = 256;
/** Delivered updates that stay in the list before it is truncated. */
const MAX_GIVEN_OUT = 1_000;

/** Work that runs after all earlier updates have been delivered. It yields when the budget is used up. */
export type InTurn = (budget: Budget) => Iterator<void>;

/** Queues an event for a subscriber that has selected it, and whose grants allow it if the update is private. */
export type DeliverEvent = (subscriber: Subscriber, event: Buffer, isPrivate: boolean) => void;

/** An update that is being delivered. */
interface Dispatch {
  readonly entry: HistoryEntry;
  readonly prepared: PreparedUpdate;
  /** Subscribers with equal tokens share their grants, so one check decides for all of them. */
  readonly readable: Map<Grants, ReadQuestion>;
  readonly sets: Iterator<ReadonlySet<Subscriber> | null>;
  visited: Iterator<Subscriber> | null;
  /** The subscriber whose grants are being checked. */
  asked: Subscriber | null;
}

/** Finds the subscribers of new updates, in slices, one update after the other. */
export class FanOut {
  readonly #index: SubscriptionIndex;
  readonly #base: string;
  readonly #budget = new Budget(0);
  readonly #deliver: DeliverEvent;
  /** The number of delivered updates. */
  delivered = 0;
  #backlog: (HistoryEntry | InTurn)[] = [];
  #backlogSize = 0;
  /** How many entries of the backlog have been started. */
  #begun = 0;
  #current: Dispatch | Iterator<void> | null = null;
  /** Parsed topics of updates that were parsed earlier. */
  readonly #read = new WeakMap<Update, readonly Topic[]>();

  /** @param base see `hubBase` */
  constructor(index: SubscriptionIndex, base: string, deliver: DeliverEvent) {
    this.#index = index;
    this.#base = base;
    this.#deliver = deliver;
  }

  /** Updates that wait for delivery, including the one in progress. */
  get waiting(): number {
    return this.#backlog.length - this.#begun + (this.#current === null ? 0 : 1);
  }

  /** Characters of data and topics that wait for delivery, plus a constant for each update. */
  get backlogSize(): number {
    return this.#backlogSize;
  }

  /** Remembers the parsed topics of an update, so that they are not parsed again. */
  know(update: Update, topics: readonly Topic[]): void {
    this.#read.set(update, topics);
  }

  add(entries: readonly HistoryEntry[]): void {
    for (const entry of entries) {
      this.#backlog.push(entry);
      this.#backlogSize += updateSize(entry.update) + UPDATE_OVERHEAD;
    }
  }

  /** Runs work between the updates that were added before and those that are added later. */
  addInTurn(work: InTurn): void {
    this.#backlog.push(work);
  }

  /** Works until the budget is used up; returns true if there is more to do. */
  run(budget: Budget): boolean {
    // The selection keeps a reference to its budget object, so the same object is filled again.
    const own = this.#budget;
    own.left = budget.left;
    let isBusy = true;
    while (isBusy && !own.isSpent) {
      this.#current ??= this.#begin();
      if (this.#current === null) isBusy = false;
      else if (this.#hasEnded(this.#current)) {
        this.#current = null;
        this.delivered += 1;
      }
    }
    budget.left = own.left;
    return isBusy && this.waiting > 0;
  }

  #begin(): Dispatch | Iterator<void> | null {
    const entry = this.#backlog[this.#begun];
    if (entry === undefined) {
      this.#backlog = [];
      this.#begun = 0;
      return null;
    }
    this.#begun += 1;
    // If updates keep arriving, the backlog is never empty, so it is truncated here.
    if (this.#begun >= MAX_GIVEN_OUT && this.#begun * 2 >= this.#backlog.length) {
      this.#backlog = this.#backlog.slice(this.#begun);
      this.#begun = 0;
    }
    if (typeof entry === 'function') return entry(this.#budget);
    this.#backlogSize -= updateSize(entry.update) + UPDATE_OVERHEAD;
    this.#budget.spend(DISPATCH_STEPS);
    const prepared = this.#prepare(entry.update);
    return {
      entry,
      prepared,
      readable: new Map(),
      sets: this.#index.select(prepared.topics, this.#budget),
      visited: null,
      asked: null,
    };
  }

  #hasEnded(current: Dispatch | Iterator<void>): boolean {
    return 'next' in current ? current.next().done === true : this.#advance(current);
  }

  #prepare(update: Update): PreparedUpdate {
    const known = this.#read.get(update);
    // The history may keep the update for a long time, so its event is released.
    if (known !== undefined) this.#read.delete(update);
    return new PreparedUpdate(update, this.#base, known);
  }

  /** Returns true when all subscribers have it. */
  #advance(dispatch: Dispatch): boolean {
    const budget = this.#budget;
    while (!budget.isSpent) {
      if (dispatch.asked !== null && !this.#visit(dispatch, dispatch.asked)) return false;
      dispatch.asked = null;
      if (dispatch.visited === null) {
        const { value, done } = dispatch.sets.next();
        if (done === true) return true;
        if (value === null) continue;
        dispatch.visited = value.values();
      }
      const { value, done } = dispatch.visited.next();
      if (done === true) {
        dispatch.visited = null;
        continue;
      }
      budget.spend(VISIT_STEPS);
      if (!this.#visit(dispatch, value)) {
        dispatch.asked = value;
        return false;
      }
    }
    return false;
  }

  /** Returns false if the budget is used up before it is decided whether the subscriber gets the update. */
  #visit(dispatch: Dispatch, subscriber: Subscriber): boolean {
    const { position, update } = dispatch.entry;
    // Several of its matchers may have selected it, or it has already read this update from the history.
    if (position <= subscriber.position || subscriber.ended !== null) return true;
    if (update.private) {
      const readable = this.#mayRead(dispatch, subscriber.options.grants);
      if (readable === null) return false;
      if (!readable) {
        subscriber.position = position;
        return true;
      }
    }
    const event = dispatch.prepared.event(this.#budget);
    if (event === null) return false;
    subscriber.position = position;
    this.#deliver(subscriber, event, update.private);
    return true;
  }

  #mayRead({ readable, prepared: { topics } }: Dispatch, grants: Grants): boolean | null {
    let question = readable.get(grants);
    if (question === undefined) {
      question = new ReadQuestion(grants, topics);
      readable.set(grants, question);
    }
    return question.ask(this.#budget);
  }
}
