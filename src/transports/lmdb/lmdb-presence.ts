import { hash, randomUUID } from 'node:crypto';
import type { RootDatabase } from 'lmdb';
import type { SubscriptionRecord } from '../../hub/presence.ts';
import {
  matcherName,
  matcherNames,
  type PresenceBoard,
  type PresenceChange,
  type PresenceMatcher,
  type PresencePage,
} from '../../hub/presence-board.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import {
  type Claim,
  type Entered,
  HEARTBEAT_MS,
  LEASE_MS,
  type OwnEntry,
  PresenceKeeper,
  type PresenceStore,
} from '../presence-keeper.ts';
import {
  type ClaimedChange,
  type ListPlace,
  type PresenceDatabases,
  type SubscriberEntry,
  type SubscriberKey,
  write,
} from './lmdb-store.ts';

/** Subscribers that are added or removed in one transaction. */
const AT_ONCE = 250;

/** Stands in place of a lease while the subscribers of its process are being removed. */
const DECLARED_DEAD = -1;

export interface LmdbPresenceOptions {
  readonly root: RootDatabase;
  readonly databases: PresenceDatabases;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * A presence board in the database of the history. Each process renews a lease. A process that finds an
 * expired lease removes the entries of its process in the transaction in which it saw them, so that no other
 * process does the same.
 */
export class LmdbPresence implements PresenceBoard {
  readonly #root: RootDatabase;
  readonly #clock: Clock;
  readonly #keeper: PresenceKeeper<SubscriberKey>;
  readonly #entries: PresenceDatabases['entries'];
  readonly #lists: PresenceDatabases['lists'];
  readonly #departed: PresenceDatabases['departed'];
  readonly #leases: PresenceDatabases['leases'];
  readonly #process = randomUUID();
  /** When the last heartbeat was written. */
  #beatAt: number;
  /** A heartbeat waits for other writers. */
  #isBeating = false;
  #isClosed = false;

  constructor({ root, databases, clock, log }: LmdbPresenceOptions) {
    this.#root = root;
    this.#clock = clock;
    this.#beatAt = clock.now();
    this.#entries = databases.entries;
    this.#lists = databases.lists;
    this.#departed = databases.departed;
    this.#leases = databases.leases;
    const store: PresenceStore<SubscriberKey> = {
      atOnce: AT_ONCE,
      enter: (entries) => this.#write(() => this.#enter(entries)),
      leave: (subscribers, name) => this.#write(() => this.#leave(subscribers, name)),
      beat: (name, renews, most) => this.#beat(name, renews, most),
      settle: (claims, name) => this.#write(() => this.#settle(claims, name)),
    };
    this.#keeper = new PresenceKeeper({ store, isAway: null, clock, log });
  }

  enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void> {
    return this.#keeper.enter(subscriber, records);
  }

  leave(subscriber: string): Promise<void> {
    return this.#keeper.leave(subscriber);
  }

  async page(
    after: string | null,
    limit: number,
    matcher?: PresenceMatcher,
  ): Promise<PresencePage> {
    return this.#read(() => this.#page(after, limit, matcher));
  }

  async of(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    return this.#read(() =>
      Array.from(this.#leases.getKeys())
        .filter((process) => this.#lives(process))
        .flatMap((process) => this.#recordsOf([process, subscriber])),
    );
  }

  watch(listener: (change: PresenceChange) => Promise<void>): void {
    this.#keeper.watch(listener);
  }

  /** Removes this process from the board. */
  async close(): Promise<void> {
    try {
      await this.#keeper.close();
      await this.#write(() => this.#leases.removeSync(this.#process));
    } finally {
      this.#isClosed = true;
    }
  }

  #page(after: string | null, limit: number, matcher?: PresenceMatcher): PresencePage {
    const list = matcher === undefined ? '' : listOf(matcherName(matcher));
    // One more than a page: the position at which the next page begins.
    const places = this.#lists.getKeys({
      start: after === null ? [list] : placeOf(after),
      end: [list, LAST],
      limit: limit + 1,
    });
    const found = Array.from(places);
    const following = found[limit];
    return {
      records: found.slice(0, limit).flatMap(([, , , process, subscriber]) => {
        return this.#lives(process) ? this.#recordsOf([process, subscriber]) : [];
      }),
      next: following === undefined ? null : JSON.stringify(following),
    };
  }

  #enter(entries: readonly OwnEntry[]): Entered {
    const lived = this.#renew();
    const states = entries.map(({ subscriber, records, since, order }) => {
      const key: SubscriberKey = [this.#process, subscriber];
      if (this.#entries.get(key) !== undefined) return 'there';
      this.#put(key, { since, order, records: JSON.stringify(records) });
      return this.#departed.get(key) === undefined ? 'new' : 'claimed';
    });
    return { lived, states };
  }

  /** Returns whether there was a lease to renew. */
  #renew(): boolean {
    const lived = (this.#leases.get(this.#process) ?? DECLARED_DEAD) !== DECLARED_DEAD;
    this.#leases.putSync(this.#process, this.#clock.now() + LEASE_MS);
    return lived;
  }

  #leave(subscribers: readonly string[], name: string): readonly Claim<SubscriberKey>[] {
    const entered = subscribers.flatMap((subscriber) => {
      const key: SubscriberKey = [this.#process, subscriber];
      const entry = this.#entries.get(key);
      return entry === undefined ? [] : [[key, entry] as const];
    });
    for (const [key] of entered) this.#takeOff(key);
    return this.#claim(entered, name);
  }

  async #beat(name: string, renews: boolean, most: number) {
    const nothing = { lived: true, claimed: [] };
    // The next one looks again when this one is written, and the others have had the time to write theirs.
    if (this.#isBeating) return nothing;
    const asked = this.#clock.now();
    if (!renews && !this.#hasDeparted()) {
      this.#beatAt = asked;
      return nothing;
    }
    this.#isBeating = true;
    try {
      return await this.#write(() => {
        const isLate = this.#isLate(asked);
        const lived = !renews || this.#renew();
        return { lived, claimed: isLate ? [] : this.#claimDeparted(name, most) };
      });
    } finally {
      this.#isBeating = false;
    }
  }

  /**
   * Whether the last heartbeat was so long ago that the leases of all processes may have expired: the machine was
   * suspended, its clock was set forward, or a writer has held up the others. The others renew theirs before the next
   * heartbeat.
   */
  #isLate(asked: number): boolean {
    const now = this.#clock.now();
    const isLate = now - this.#beatAt > LEASE_MS - HEARTBEAT_MS || now - asked > HEARTBEAT_MS;
    this.#beatAt = now;
    return isLate;
  }

  #settle(claims: readonly Claim<SubscriberKey>[], name: string): readonly Claim<SubscriberKey>[] {
    return claims.flatMap(({ key, active }) => {
      const claimed = this.#departed.get(key);
      // The process that has taken over the claim settles it.
      if (claimed === undefined) return [];
      const entry = this.#entries.get(key);
      if ((entry !== undefined) === active) {
        this.#departed.removeSync(key);
        return [];
      }
      const { records } = entry ?? claimed;
      return [this.#keepClaim(key, { departure: name, active: !active, records })];
    });
  }

  /** Whether there is a dead process, or a change that has not been announced. */
  #hasDeparted(): boolean {
    const isDue = Array.from(this.#departed.getRange({ limit: 1 })).length > 0;
    return isDue || Array.from(this.#leases.getKeys()).some((process) => !this.#lives(process));
  }

  /** Removes subscribers of dead processes, and takes over expired claims. */
  #claimDeparted(name: string, most: number): readonly Claim<SubscriberKey>[] {
    const now = this.#clock.now();
    const due: [SubscriberKey, ClaimedChange][] = [];
    for (const { key, value } of this.#departed.getRange()) {
      if (due.length === most) break;
      if (value.claimedUntil <= now) due.push([key, value]);
    }
    const claimed = due.map(([key, value]) => this.#keepClaim(key, value));
    for (const process of Array.from(this.#leases.getKeys())) {
      const left = most - claimed.length;
      if (left <= 0) break;
      if (this.#lives(process)) continue;
      this.#leases.putSync(process, DECLARED_DEAD);
      claimed.push(...this.#claim(this.#remove(process, left), name));
    }
    return claimed;
  }

  /** Claims the announcement of removed subscribers, unless another process is already announcing them. */
  #claim(
    gone: readonly (readonly [SubscriberKey, SubscriberEntry])[],
    name: string,
  ): readonly Claim<SubscriberKey>[] {
    return gone.flatMap(([key, { records }]) =>
      this.#departed.get(key) === undefined
        ? [this.#keepClaim(key, { departure: name, records })]
        : [],
    );
  }

  #keepClaim(key: SubscriberKey, what: Omit<ClaimedChange, 'claimedUntil'>): Claim<SubscriberKey> {
    const { departure: name, active = false, records } = what;
    const claimedUntil = this.#clock.now() + LEASE_MS;
    this.#departed.putSync(key, { departure: name, active, records, claimedUntil });
    return { key, name, active, records: recordsOf({ records }) };
  }

  /** Removes subscribers of a process, and its lease together with the last of them. */
  #remove(process: string, most: number): readonly (readonly [SubscriberKey, SubscriberEntry])[] {
    const range = {
      start: [process, ''] as SubscriberKey,
      end: [process, LAST] as SubscriberKey,
      limit: most,
    };
    const found = Array.from(this.#entries.getRange(range));
    for (const { key } of found) this.#takeOff(key);
    if (found.length < most) this.#leases.removeSync(process);
    return found.map(({ key, value }) => [key, value]);
  }

  #put(key: SubscriberKey, entry: SubscriberEntry): void {
    this.#entries.putSync(key, entry);
    for (const place of placesOf(key, entry)) this.#lists.putSync(place, true);
  }

  #takeOff(key: SubscriberKey): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    for (const place of placesOf(key, entry)) this.#lists.removeSync(place);
    this.#entries.removeSync(key);
  }

  #recordsOf(key: SubscriberKey): readonly SubscriptionRecord[] {
    const entry = this.#entries.get(key);
    return entry === undefined ? [] : recordsOf(entry);
  }

  #lives(process: string): boolean {
    if (process === this.#process) return true;
    return (this.#leases.get(process) ?? 0) > this.#clock.now();
  }

  async #write<Result>(change: () => Result): Promise<Result> {
    this.#refuseClosed();
    try {
      return await write(this.#root, change);
    } catch (cause) {
      throw new HubgateError('transport-failed', 'The presence could not be stored', { cause });
    }
  }

  /** Data without a checksum may be unreadable. */
  #read<Value>(read: () => Value): Value {
    this.#refuseClosed();
    try {
      // All reads of one turn use the same snapshot, which may be older than another process's commit.
      this.#root.resetReadTxn();
      return read();
    } catch (cause) {
      throw new HubgateError('transport-failed', 'The presence could not be read', { cause });
    }
  }

  #refuseClosed(): void {
    if (this.#isClosed) throw new HubgateError('transport-closed', 'The history is closed');
  }
}

/** Sorts after every subscriber's id, which is a URN. */
const LAST = '\u{10ffff}';

function placesOf([process, subscriber]: SubscriberKey, entry: SubscriberEntry): ListPlace[] {
  const lists = [...matcherNames(recordsOf(entry))].map(listOf);
  return ['', ...lists].map((list) => [list, entry.since, entry.order, process, subscriber]);
}

/** A matcher may be longer than a key. */
function listOf(name: string): string {
  return hash('sha256', name, 'base64url');
}

/** A key from the previous page. */
function placeOf(after: string): ListPlace {
  return JSON.parse(after) as ListPlace;
}

function recordsOf({ records }: Pick<SubscriberEntry, 'records'>): readonly SubscriptionRecord[] {
  // Written by `enter`, which gets such records.
  return JSON.parse(records) as readonly SubscriptionRecord[];
}
