// Each process holds a lease of 15 s for its entries on the presence board. Any process that finds an expired
// lease removes the entries of that process, some at a time, in the transaction in which it saw them. In the
// same step it claims their announcement for 15 s. If the claim expires, another process announces them with
// the same id. So events and API agree.

import { randomUUID } from 'node:crypto';
import type { SubscriptionRecord } from '../hub/presence.ts';
import type { PresenceChange } from '../hub/presence-board.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, messageOf, ignore } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';

/** How long a process counts as alive after its last heartbeat, and how long a claim to announce is valid. */
export const LEASE_MS = 15_000;
/** How often a process renews its lease, and looks for expired ones. */
export const HEARTBEAT_MS = 5_000;
/**
 * Records of one step, unless a single subscriber has more. A subscriber may have a hundred, each with a long matcher and
 * payload, and a step of hundreds of them would take the server longer than it has for an answer.
 */
export const RECORDS_AT_ONCE = 500;
/** Most claims of the first look for them, because nobody knows how large they are. */
const FIRST_CLAIMS = 8;

/** A subscriber of this process, in the form in which it is stored. */
export interface OwnEntry {
  readonly subscriber: string;
  readonly records: readonly SubscriptionRecord[];
  /** Milliseconds since the Unix epoch, and a number that orders arrivals within one of them. */
  readonly since: number;
  readonly order: number;
}

/**
 * The change of a subscriber that this process has promised to announce: whether it is present, with a name
 * for the change.
 */
export interface Claim<Key> {
  readonly key: Key;
  readonly name: string;
  readonly active: boolean;
  readonly records: readonly SubscriptionRecord[];
}

/** What a store says of subscribers that were entered. */
export interface Entered {
  /** Whether the process still had its lease; otherwise its earlier subscribers may have been removed. */
  readonly lived: boolean;
  /** Whether each is new, was present, or is new while a process has claimed to announce its state. */
  readonly states: readonly ('new' | 'there' | 'claimed')[];
}

/** A state as a server writes it. */
export function stateOf(text: unknown): Entered['states'][number] {
  return text === 'new' || text === 'claimed' ? text : 'there';
}

/** The store of a board. Each function is one step of it, or as many steps as there are entries. */
export interface PresenceStore<Key> {
  /** Entries that are added or removed in one step. */
  readonly atOnce: number;
  /** Enters subscribers of this process that are not present, and renews its lease. */
  enter(entries: readonly OwnEntry[]): Promise<Entered>;
  /**
   * Removes subscribers of this process, and claims those that no other process has claimed.
   *
   * @param records that these subscribers have
   */
  leave(
    subscribers: readonly string[],
    name: string,
    records: number,
  ): Promise<readonly Claim<Key>[]>;
  /**
   * Renews the lease if `renews` is true and says whether there was one, removes some entries of dead
   * processes, and claims their announcement, together with expired claims of others: at most so many.
   */
  beat(
    name: string,
    renews: boolean,
    most: number,
  ): Promise<{ readonly lived: boolean; readonly claimed: readonly Claim<Key>[] }>;
  /**
   * Marks changes as announced. Subscribers whose state has changed again in the meantime are claimed again,
   * with this name.
   */
  settle(claims: readonly Claim<Key>[], name: string): Promise<readonly Claim<Key>[]>;
}

interface PresenceKeeperOptions<Key> {
  readonly store: PresenceStore<Key>;
  /**
   * Whether the store is unavailable at the moment. Subscribers that arrive then are entered and announced later. null:
   * it is never unavailable.
   */
  readonly isAway: (() => boolean) | null;
  readonly clock: Clock;
  readonly log: Logger;
}

interface Own extends OwnEntry {
  /** Name of the arrival, for its announcement. */
  name: string;
  /** No process can have announced this arrival. */
  isNew: boolean;
  /** No process can have announced this arrival or an earlier one, so nobody need be told of the departure. */
  isUnknown: boolean;
  /** The board may have it. */
  isSent: boolean;
  /** Settles when the board has answered the last attempt to enter it; never rejects. */
  entered: Promise<unknown>;
}

/**
 * Keeps the subscribers of this process on a board, and makes the announcements agree with the board. The
 * process that removes a subscriber claims its announcement in the same step. The claim lasts until the
 * announced state is the state on the board; in the meantime, no other process announces anything about that
 * subscriber. So nothing stays unannounced, even if a process dies or the store becomes unavailable. If a
 * subscriber counted as dead and returns, its departure is announced first.
 */
export class PresenceKeeper<Key> {
  readonly #options: PresenceKeeperOptions<Key>;
  readonly #own = new Map<string, Own>();
  /**
   * The subscribers of this process whose arrival has not been announced: at most those that arrived while
   * the store was unavailable.
   */
  readonly #pending = new Set<string>();
  readonly #announcing = new Set<string>();
  /**
   * Subscribers that could not be removed: at most those that were on the board when the store became
   * unavailable. With the number of their records.
   */
  readonly #gone = new Map<string, number>();
  /** Those of {@link #gone} that are unknown. */
  readonly #unknown = new Set<string>();
  /** Arrivals and departures in progress. */
  readonly #underway = new Set<Promise<unknown>>();
  /** Whether this process lost its lease and has not entered its subscribers again since. */
  #isLapsed = false;
  #order = 0;
  #changed: (change: PresenceChange) => Promise<void> = async () => {};
  #stopHeartbeat: () => void = () => {};
  #isClosed = false;

  constructor(options: PresenceKeeperOptions<Key>) {
    this.#options = options;
    this.#armHeartbeat();
  }

  watch(listener: (change: PresenceChange) => Promise<void>): void {
    this.#changed = listener;
  }

  enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void> {
    return this.#track(async () => {
      const { clock, isAway } = this.#options;
      this.#order += 1;
      const place = { since: clock.now(), order: this.#order };
      const isSent = isAway?.() !== true;
      const state = { name: randomUUID(), isNew: true, isUnknown: true, isSent };
      const entered = Promise.resolve();
      const own: Own = { subscriber, records, ...place, ...state, entered };
      this.#own.set(subscriber, own);
      this.#pending.add(subscriber);
      try {
        const { lived } = await this.#enterOnBoard([own]).catch((error: unknown) => {
          // The store may be full, for example: the next heartbeat enters this subscriber again.
          this.#isLapsed = true;
          throw error;
        });
        // The next heartbeat finds the lease that this has renewed.
        if (!lived && this.#own.size > 1) this.#isLapsed = true;
        await this.#announcePending([subscriber]);
      } catch (error) {
        if (isAway !== null && codeOf(error) !== 'transport-closed') return;
        throw error;
      }
    });
  }

  leave(subscriber: string): Promise<void> {
    return this.#track(async () => {
      const own = this.#own.get(subscriber);
      this.#own.delete(subscriber);
      this.#pending.delete(subscriber);
      if (own?.isSent === false) return;
      // A board may answer departures before arrivals that it was asked for earlier.
      await own?.entered;
      if (own !== undefined) this.#gone.set(subscriber, own.records.length);
      if (own?.isUnknown === true) this.#unknown.add(subscriber);
      await this.#announce(await this.#takeOff([subscriber]), true);
    });
  }

  /**
   * Updates the board with the arrivals and departures that happened while the store was unavailable. The
   * returned function announces them when the history accepts entries again.
   */
  async restore(): Promise<() => void> {
    const claims = await this.#takeOff([...this.#gone.keys()]);
    await this.#enterAgain();
    return () => {
      const announcing = this.#announce(claims, true).then(() =>
        this.#announcePending([...this.#pending]),
      );
      announcing.catch((error: unknown) => this.#failed(error));
    };
  }

  /**
   * Resolves when all arrivals and departures are announced. Claims for subscribers of other processes are
   * left to others.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stopHeartbeat();
    while (this.#underway.size > 0) await Promise.allSettled(this.#underway);
    // Subscribers that could not be removed earlier end with this process, and must be announced.
    for (const own of this.#own.values()) if (own.isUnknown) this.#unknown.add(own.subscriber);
    const left = [...this.#gone.keys(), ...this.#own.keys()];
    await this.#announce(await this.#takeOff(left), true);
  }

  #track<Result>(task: () => Promise<Result>): Promise<Result> {
    const result = task();
    this.#underway.add(result);
    const done = (): void => void this.#underway.delete(result);
    result.then(done, done);
    return result;
  }

  #armHeartbeat(): void {
    this.#stopHeartbeat = this.#options.clock.after(HEARTBEAT_MS, () => {
      this.#beat().catch((error: unknown) => this.#failed(error));
      if (!this.#isClosed) this.#armHeartbeat();
    });
  }

  async #beat(): Promise<void> {
    const { store } = this.#options;
    await this.#announce(await this.#takeOff([...this.#gone.keys()]), false);
    for (let most = Math.min(FIRST_CLAIMS, store.atOnce); most > 0 && !this.#isClosed; ) {
      const { lived, claimed } = await store.beat(randomUUID(), this.#own.size > 0, most);
      // This process counted as dead although it was only slow, or the store has lost its lease.
      if (!lived || this.#isLapsed) await this.#enterAgain();
      await this.#announcePending([...this.#pending]);
      await this.#announce(claimed, false);
      const records = sumOf(claimed, (claim) => claim.records.length);
      if (claimed.length === 0) most = 0;
      else if (records > RECORDS_AT_ONCE) most = Math.ceil(most / 4);
      else if (records < RECORDS_AT_ONCE / 8) most = Math.min(most * 4, store.atOnce);
    }
  }

  #enterOnBoard(entries: readonly Own[]): Promise<Entered> {
    const answer = this.#options.store.enter(entries);
    const entered = answer.catch(ignore);
    for (const own of entries) own.entered = entered;
    return answer;
  }

  /** Some may leave between two steps. */
  async #enterAgain(): Promise<void> {
    this.#isLapsed = true;
    for (const some of this.#inSteps([...this.#own.keys()], this.#recordsOf)) {
      const entries = some.flatMap((subscriber) => this.#own.get(subscriber) ?? []);
      if (entries.length === 0) continue;
      for (const own of entries) own.isSent = true;
      const { states } = await this.#enterOnBoard(entries);
      for (const [index, own] of entries.entries()) {
        if (states[index] === 'claimed') own.isUnknown = false;
        if (!this.#own.has(own.subscriber)) continue;
        if (states[index] === 'claimed') this.#pending.delete(own.subscriber);
        if (states[index] !== 'new' || this.#pending.has(own.subscriber)) continue;
        own.name = randomUUID();
        own.isNew = true;
        this.#pending.add(own.subscriber);
      }
    }
    this.#isLapsed = false;
  }

  /** Returns the claims that are to be announced. */
  async #takeOff(subscribers: readonly string[]): Promise<readonly Claim<Key>[]> {
    const { store } = this.#options;
    const claims: Claim<Key>[] = [];
    const known = subscribers.filter((subscriber) => !this.#unknown.has(subscriber));
    for (const some of this.#inSteps(known, this.#recordsOf)) {
      claims.push(...(await store.leave(some, randomUUID(), sumOf(some, this.#recordsOf))));
      for (const subscriber of some) this.#gone.delete(subscriber);
    }
    const unknown = subscribers.filter((subscriber) => this.#unknown.has(subscriber));
    for (const some of this.#inSteps(unknown, this.#recordsOf)) {
      const quiet = await store.leave(some, randomUUID(), sumOf(some, this.#recordsOf));
      if (quiet.length > 0) claims.push(...(await store.settle(quiet, randomUUID())));
      for (const subscriber of some) {
        this.#gone.delete(subscriber);
        this.#unknown.delete(subscriber);
      }
    }
    return claims;
  }

  async #announcePending(subscribers: readonly string[]): Promise<void> {
    for (const some of this.#inSteps(subscribers, this.#recordsOf)) {
      await Promise.all(some.map((subscriber) => this.#announceOwn(subscriber)));
    }
  }

  async #announceOwn(subscriber: string): Promise<void> {
    const own = this.#own.get(subscriber);
    if (own === undefined || !this.#pending.has(subscriber) || this.#announcing.has(subscriber))
      return;
    const { records, name, isNew } = own;
    own.isNew = false;
    own.isUnknown = false;
    this.#announcing.add(subscriber);
    try {
      await this.#changed({ records, active: true, name, isNew });
      this.#pending.delete(subscriber);
    } finally {
      this.#announcing.delete(subscriber);
    }
  }

  async #announce(claims: readonly Claim<Key>[], areNew: boolean): Promise<void> {
    const { store } = this.#options;
    let due = claims;
    let isNew = areNew;
    while (due.length > 0) {
      const again: Claim<Key>[] = [];
      for (const some of this.#inSteps(due, ({ records }) => records.length)) {
        for (const change of changesOf(some)) await this.#changed({ ...change, isNew });
        again.push(...(await store.settle(some, randomUUID())));
      }
      due = again;
      isNew = true;
    }
  }

  /** The number of records of a subscriber of this process, or of one that could not be removed. */
  readonly #recordsOf = (subscriber: string): number =>
    this.#own.get(subscriber)?.records.length ?? this.#gone.get(subscriber) ?? 0;

  #inSteps<Item>(
    items: readonly Item[],
    recordsOf: (item: Item) => number,
  ): readonly (readonly Item[])[] {
    const { atOnce } = this.#options.store;
    const steps: Item[][] = [];
    let step: Item[] = [];
    let records = 0;
    for (const item of items) {
      const added = recordsOf(item);
      const isFull = step.length === atOnce || records + added > RECORDS_AT_ONCE;
      if (step.length === 0 || isFull) {
        step = [];
        records = 0;
        steps.push(step);
      }
      step.push(item);
      records += added;
    }
    return steps;
  }

  #failed(error: unknown): void {
    const { isAway, log } = this.#options;
    const reason = messageOf(error);
    if (isAway !== null) log.debug('The presence could not be renewed', { reason });
    else log.error('The presence could not be renewed', { error: reason });
  }
}

function sumOf<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((sum, item) => sum + of(item), 0);
}

/** Claims with the same name are one change. */
function changesOf<Key>(claims: readonly Claim<Key>[]): readonly Omit<PresenceChange, 'isNew'>[] {
  const changes = new Map<
    string,
    { active: boolean; name: string; records: SubscriptionRecord[] }
  >();
  for (const { name, active, records } of claims) {
    // The name of a step may belong to subscribers that are present and to others that are not.
    const key = `${active} ${name}`;
    const change = changes.get(key) ?? { active, name, records: [] };
    change.records.push(...records);
    changes.set(key, change);
  }
  return [...changes.values()];
}
