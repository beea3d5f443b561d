import { Budget } from '../kernel/scheduler.ts';
import { type Grants, ReadQuestion } from './grants.ts';
import { PreparedUpdate } from './event-stream.ts';
import type { Subscriber } from './subscriber.ts';
import type { SubscriptionIndex } from './subscription-index.ts';
import type { Topic } from './topic.ts';
import type { LogEntry } from './transport.ts';
import { type Update, updateSize } from './update.ts';

/** What giving an event to a subscriber costs, in steps. */
const VISIT_STEPS = 5;
/** What beginning a dispatch costs, in steps. */
const DISPATCH_STEPS = 200;
/** Counted for an update beside its characters. */
const UPDATE_OVERHEAD = 256;
/** Updates that are kept though they have been given out, before they are cut off. */
const MAX_GIVEN_OUT = 1_000;

/** Work that is done when all updates before it have been given out; yields when nothing is left of the budget. */
export type InTurn = (budget: Budget) => Iterator<void>;

/** An update on its way to those who want it. */
interface Dispatch {
  readonly entry: LogEntry;
  readonly prepared: PreparedUpdate;
  /** Subscribers with equal tokens share their grants, so one check serves them all. */
  readonly readable: Map<Grants, ReadQuestion>;
  readonly sets: Iterator<ReadonlySet<Subscriber> | null>;
  visited: Iterator<Subscriber> | null;
  /** The one whose grants are being looked at. */
  asked: Subscriber | null;
}

/** Finds, in slices, whom the updates of the log concern: one update after the other. */
export class FanOut {
  readonly #index: SubscriptionIndex;
  readonly #base: string;
  readonly #budget = new Budget(0);
  readonly #deliver: (subscriber: Subscriber, event: Buffer) => void;
  /** Updates that have been given out. */
  delivered = 0;
  #backlog: (LogEntry | InTurn)[] = [];
  #backlogSize = 0;
  /** How many of the backlog have been begun. */
  #begun = 0;
  #current: Dispatch | Iterator<void> | null = null;
  /** The topics of updates that have been read as such before. */
  readonly #read = new WeakMap<Update, readonly Topic[]>();

  /** @param base see `hubBase` */
  constructor(
    index: SubscriptionIndex,
    base: string,
    deliver: (subscriber: Subscriber, event: Buffer) => void,
  ) {
    this.#index = index;
    this.#base = base;
    this.#deliver = deliver;
  }

  /** Updates that wait to be given out, the one under way included. */
  get waiting(): number {
    return this.#backlog.length - this.#begun + (this.#current === null ? 0 : 1);
  }

  /** Characters of data and topics that wait to be given out, and something for each update. */
  get backlogSize(): number {
    return this.#backlogSize;
  }

  /** Remembers an update's topics, so that they are not read again. */
  know(update: Update, topics: readonly Topic[]): void {
    this.#read.set(update, topics);
  }

  add(entries: readonly LogEntry[]): void {
    for (const entry of entries) {
      this.#backlog.push(entry);
      this.#backlogSize += updateSize(entry.update) + UPDATE_OVERHEAD;
    }
  }

  /** Does some work between what was added before and what is added from now on. */
  addInTurn(work: InTurn): void {
    this.#backlog.push(work);
  }

  /** Works as far as the budget goes; true when there is more to do. */
  run(budget: Budget): boolean {
    // The selection holds the budget that it was given, so that one is filled.
    const own = this.#budget;
    own.left = budget.left;
    let busy = true;
    while (busy && !own.isSpent) {
      this.#current ??= this.#begin();
      if (this.#current === null) busy = false;
      else if (this.#hasEnded(this.#current)) {
        this.#current = null;
        this.delivered += 1;
      }
    }
    budget.left = own.left;
    return busy && this.waiting > 0;
  }

  #begin(): Dispatch | Iterator<void> | null {
    const entry = this.#backlog[this.#begun];
    if (entry === undefined) {
      this.#backlog = [];
      this.#begun = 0;
      return null;
    }
    this.#begun += 1;
    // Where more always comes, the backlog is never empty.
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
    // The log may keep the update for long.
    if (known !== undefined) this.#read.delete(update);
    return new PreparedUpdate(update, this.#base, known);
  }

  /** True when everybody has it. */
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

  /** False when nothing is left of the budget before the subscriber has it, or is known not to get it. */
  #visit(dispatch: Dispatch, subscriber: Subscriber): boolean {
    const { position, update } = dispatch.entry;
    // Several of its matchers may have selected it, or the log has shown it this one already.
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
    this.#deliver(subscriber, event);
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
