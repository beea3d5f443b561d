// Each process holds a lease of 15 s on its presence entries. Any process that finds an expired
// lease removes its entries, some at a time, in the transaction that saw them, and claims their
// announcement for 15 s in the same step. Another process announces them under the same id if the
// claim runs out. So events and API agree.

import { randomUUID } from 'node:crypto';
import type { SubscriptionRecord } from '../hub/presence.ts';
import type { PresenceChange } from '../hub/presence-board.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';

/** How long a process is believed to live after it was last heard of, and a claim to announce holds. */
export const LEASE_MS = 15_000;
/** How often it says that it lives, and looks for those that no longer do. */
const HEARTBEAT_MS = 5_000;

/** A subscriber of this process, as it is entered. */
export interface OwnEntry {
  readonly subscriber: string;
  readonly records: readonly SubscriptionRecord[];
  /** Milliseconds since the Unix epoch, and a number that orders what came within one of them. */
  readonly since: number;
  readonly order: number;
}

/** What this process has promised to announce of a subscriber: whether it is there, under a name. */
export interface Claim<Key> {
  readonly key: Key;
  readonly name: string;
  readonly active: boolean;
  readonly records: readonly SubscriptionRecord[];
}

/** The store of a board. Each function is one step of it, or as many as it has entries. */
export interface PresenceStore<Key> {
  /** Entered or taken off in one step. */
  readonly atOnce: number;
  /**
   * Enters subscribers of this process that are not there, and renews its lease. Says of each whether
   * it is new, was there, or is new while somebody has claimed to announce what it is.
   */
  enter(entries: readonly OwnEntry[]): Promise<readonly ('new' | 'there' | 'claimed')[]>;
  /** Takes subscribers of this process off, and claims those that nobody else has claimed. */
  leave(subscribers: readonly string[], name: string): Promise<readonly Claim<Key>[]>;
  /**
   * Renews the lease where `renews`, takes off some of what a dead process has entered, and claims
   * that and whatever somebody else has claimed and not announced in time.
   */
  beat(
    name: string,
    renews: boolean,
  ): Promise<{ readonly lived: boolean; readonly claimed: readonly Claim<Key>[] }>;
  /** Has been announced. Claims again, under the name, what has become something else meanwhile. */
  settle(claims: readonly Claim<Key>[], name: string): Promise<readonly Claim<Key>[]>;
}

interface PresenceKeeperOptions<Key> {
  readonly store: PresenceStore<Key>;
  /** Whether subscribers may come while the store is away, to be entered and announced later. */
  readonly mayBeAway: boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

interface Own extends OwnEntry {
  /** Of its coming, for who announces it. */
  name: string;
  /** Nobody can have been told of that. */
  isNew: boolean;
}

/**
 * Keeps the subscribers of this process on a board, and sees that what is announced is what the board
 * says. Whoever takes a subscriber off claims its announcement in that same step, and the claim lasts
 * until what was announced is what the board says; meanwhile nobody else announces anything of that
 * subscriber. So neither a process that dies nor a store that goes away leaves something untold, and
 * of one that was taken for dead and comes back is told first that it went.
 */
export class PresenceKeeper<Key> {
  readonly #options: PresenceKeeperOptions<Key>;
  readonly #own = new Map<string, Own>();
  /** Of those, whose coming has not been announced: at most what came while the store was away. */
  readonly #pending = new Set<string>();
  readonly #telling = new Set<string>();
  /** Could not be taken off: at most what was on the board when the store went away. */
  readonly #gone = new Set<string>();
  /** Comings and goings. */
  readonly #underway = new Set<Promise<unknown>>();
  #order = 0;
  #changed: (change: PresenceChange) => Promise<void> = async () => {};
  #stopHeartbeat: () => void = () => {};
  #closed = false;

  constructor(options: PresenceKeeperOptions<Key>) {
    this.#options = options;
    this.#armHeartbeat();
  }

  watch(listener: (change: PresenceChange) => Promise<void>): void {
    this.#changed = listener;
  }

  enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void> {
    return this.#track(async () => {
      const { store, clock, mayBeAway } = this.#options;
      this.#order += 1;
      const place = { since: clock.now(), order: this.#order };
      const own = { subscriber, records, ...place, name: randomUUID(), isNew: true };
      this.#own.set(subscriber, own);
      this.#pending.add(subscriber);
      try {
        await store.enter([own]);
        await this.#tellUntold([subscriber]);
      } catch (error) {
        if (mayBeAway && codeOf(error) !== 'transport-closed') return;
        throw error;
      }
    });
  }

  leave(subscriber: string): Promise<void> {
    return this.#track(async () => {
      this.#pending.delete(subscriber);
      if (this.#own.delete(subscriber)) this.#gone.add(subscriber);
      await this.#announce(await this.#takeOff([subscriber]), true);
    });
  }

  /**
   * Brings the board up to date with what has come and gone while the store was away. What is returned
   * announces that, as soon as the log can be appended to.
   */
  async restore(): Promise<() => void> {
    const claims = await this.#takeOff([...this.#gone]);
    await this.#enterAgain();
    return () => {
      const told = this.#announce(claims, true).then(() => this.#tellUntold([...this.#pending]));
      told.catch((error: unknown) => this.#failed(error));
    };
  }

  /** Resolves when all who have come and gone are told of; what was claimed of others is left to others. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#stopHeartbeat();
    while (this.#underway.size > 0) await Promise.allSettled(this.#underway);
    // What could not be taken off before is gone with this process, and is to be told.
    const left = [...this.#gone, ...this.#own.keys()];
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
      if (!this.#closed) this.#armHeartbeat();
    });
  }

  async #beat(): Promise<void> {
    const { store } = this.#options;
    await this.#announce(await this.#takeOff([...this.#gone]), false);
    for (let more = true; more && !this.#closed; ) {
      const { lived, claimed } = await store.beat(randomUUID(), this.#own.size > 0);
      // It was taken for dead, when it was only slow, or the store has lost it.
      if (!lived) await this.#enterAgain();
      await this.#tellUntold([...this.#pending]);
      await this.#announce(claimed, false);
      more = claimed.length > 0;
    }
  }

  /** Some may leave between two steps. */
  async #enterAgain(): Promise<void> {
    const { store } = this.#options;
    for (const some of this.#inSteps([...this.#own.keys()])) {
      const entries = some.flatMap((subscriber) => this.#own.get(subscriber) ?? []);
      if (entries.length === 0) continue;
      const found = await store.enter(entries);
      for (const [index, own] of entries.entries()) {
        if (!this.#own.has(own.subscriber)) continue;
        if (found[index] === 'claimed') this.#pending.delete(own.subscriber);
        if (found[index] !== 'new' || this.#pending.has(own.subscriber)) continue;
        own.name = randomUUID();
        own.isNew = true;
        this.#pending.add(own.subscriber);
      }
    }
  }

  async #takeOff(subscribers: readonly string[]): Promise<readonly Claim<Key>[]> {
    const { store } = this.#options;
    const claims: Claim<Key>[] = [];
    for (const some of this.#inSteps(subscribers)) {
      claims.push(...(await store.leave(some, randomUUID())));
      for (const subscriber of some) this.#gone.delete(subscriber);
    }
    return claims;
  }

  async #tellUntold(subscribers: readonly string[]): Promise<void> {
    for (const some of this.#inSteps(subscribers)) {
      await Promise.all(some.map((subscriber) => this.#tellOwn(subscriber)));
    }
  }

  async #tellOwn(subscriber: string): Promise<void> {
    const own = this.#own.get(subscriber);
    if (own === undefined || !this.#pending.has(subscriber) || this.#telling.has(subscriber))
      return;
    const { records, name, isNew } = own;
    own.isNew = false;
    this.#telling.add(subscriber);
    try {
      await this.#changed({ records, active: true, name, isNew });
      this.#pending.delete(subscriber);
    } finally {
      this.#telling.delete(subscriber);
    }
  }

  async #announce(claims: readonly Claim<Key>[], areNew: boolean): Promise<void> {
    const { store } = this.#options;
    for (let [due, isNew] = [claims, areNew]; due.length > 0; isNew = true) {
      const again: Claim<Key>[] = [];
      for (const some of this.#inSteps(due)) {
        for (const change of changesOf(some)) await this.#changed({ ...change, isNew });
        again.push(...(await store.settle(some, randomUUID())));
      }
      due = again;
    }
  }

  #inSteps<Item>(items: readonly Item[]): readonly (readonly Item[])[] {
    const { atOnce } = this.#options.store;
    return Array.from({ length: Math.ceil(items.length / atOnce) }, (_, step) =>
      items.slice(step * atOnce, (step + 1) * atOnce),
    );
  }

  #failed(error: unknown): void {
    const { mayBeAway, log } = this.#options;
    const reason = messageOf(error);
    if (mayBeAway) log.debug('The presence could not be renewed', { reason });
    else log.error('The presence could not be renewed', { error: reason });
  }
}

/** What was claimed under one name is one change. */
function changesOf<Key>(claims: readonly Claim<Key>[]): readonly Omit<PresenceChange, 'isNew'>[] {
  const changes = new Map<
    string,
    { active: boolean; name: string; records: SubscriptionRecord[] }
  >();
  for (const { name, active, records } of claims) {
    // A name of a step may be of some who are there and of some who are not.
    const key = `${active} ${name}`;
    const change = changes.get(key) ?? { active, name, records: [] };
    change.records.push(...records);
    changes.set(key, change);
  }
  return [...changes.values()];
}
