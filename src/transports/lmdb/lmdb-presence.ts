import { createHash, randomUUID } from 'node:crypto';
import type { Database, RootDatabase } from 'lmdb';
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
import { HubgateError, messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import { write } from './write.ts';

/** How long a process is believed to live after it was last heard of. */
const LEASE_MS = 15_000;
/** How often it says that it lives, and looks for those that no longer do. */
const HEARTBEAT_MS = 5_000;
/** Subscribers of dead processes that are taken off in one transaction. */
const AT_ONCE = 250;

/** In the place of a lease, while subscribers of the process are taken off. */
const DECLARED_DEAD = -1;

type Key = [process: string, subscriber: string];

/** A subscriber on the board. */
interface Entry {
  /** Milliseconds since the Unix epoch, and a number that orders what came within one of them. */
  readonly since: number;
  readonly order: number;
  /** JSON, so that a payload comes back as it was. */
  readonly records: string;
}

/** What is to be announced of a subscriber whose process is dead. */
interface Departure {
  readonly departure: string;
  readonly records: string;
  /** Until then whoever has claimed it announces it. */
  readonly claimedUntil: number;
}

/**
 * Where an entry stands: in the list of a matcher, by its digest, or with '' in the list of all; in
 * the order of coming.
 */
type Place = [list: string, since: number, order: number, process: string, subscriber: string];

export interface LmdbPresenceOptions {
  readonly root: RootDatabase;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * A board in the database of the log. Each process holds a lease that it renews; whoever finds one
 * that has run out takes the entries of that process off, in the transaction in which it saw them,
 * so that nobody else does.
 */
export class LmdbPresence implements PresenceBoard {
  readonly #root: RootDatabase;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #entries: Database<Entry, Key>;
  /** The lists; all is said by the key. */
  readonly #lists: Database<boolean, Place>;
  /** Subscribers that are off the board while nobody has been told of it. */
  readonly #departed: Database<Departure, Key>;
  /** Process → when its lease runs out. */
  readonly #leases: Database<number, string>;
  readonly #process = randomUUID();
  /** What this process has entered, in case it is taken for dead. */
  readonly #own = new Map<string, Entry>();
  /** What it has entered and could not take off: at most what was on the board when that failed. */
  readonly #gone = new Set<string>();
  #order = 0;
  #changed: (change: PresenceChange) => Promise<void> = async () => {};
  #stopHeartbeat: () => void = () => {};
  #closed = false;

  constructor({ root, clock, log }: LmdbPresenceOptions) {
    this.#root = root;
    this.#clock = clock;
    this.#log = log;
    this.#entries = root.openDB({ name: 'presence', encoding: 'msgpack' });
    this.#lists = root.openDB({ name: 'presence-lists', encoding: 'msgpack' });
    this.#departed = root.openDB({ name: 'presence-departed', encoding: 'msgpack' });
    this.#leases = root.openDB({ name: 'processes', encoding: 'msgpack' });
    this.#armHeartbeat();
  }

  async enter(subscriber: string, records: readonly SubscriptionRecord[]): Promise<void> {
    this.#order += 1;
    const since = this.#clock.now();
    const entry = { since, order: this.#order, records: JSON.stringify(records) };
    this.#own.set(subscriber, entry);
    await this.#write(() => {
      this.#leases.putSync(this.#process, this.#clock.now() + LEASE_MS);
      this.#put(subscriber, entry);
    });
  }

  async leave(subscriber: string): Promise<void> {
    if (this.#own.delete(subscriber)) this.#gone.add(subscriber);
    await this.#takeOffAll([subscriber]);
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
    this.#changed = listener;
  }

  /** Takes this process off the board. */
  async close(): Promise<void> {
    this.#stopHeartbeat();
    this.#closed = true;
    const removeSome = (): number => this.#remove(this.#process, AT_ONCE).length;
    while ((await write(this.#root, removeSome)) === AT_ONCE);
  }

  #page(after: string | null, limit: number, matcher?: PresenceMatcher): PresencePage {
    const list = matcher === undefined ? '' : listOf(matcherName(matcher));
    // One more than a page: it is where the next one begins.
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

  #armHeartbeat(): void {
    this.#stopHeartbeat = this.#clock.after(HEARTBEAT_MS, () => {
      this.#beat().catch((error: unknown) => {
        this.#log.error('Presence could not be kept', { error: messageOf(error) });
      });
      this.#armHeartbeat();
    });
  }

  async #beat(): Promise<void> {
    if (this.#gone.size > 0) await this.#takeOffAll([...this.#gone].slice(0, AT_ONCE));
    if (this.#own.size > 0) {
      let back: readonly Entry[] = [];
      await this.#write(() => {
        back = this.#renew();
      });
      if (back.length > 0) {
        await this.#changed({ records: back.flatMap(recordsOf), active: true }).catch(ignore);
      }
    }
    while (!this.#closed && this.#hasDeparted()) {
      let claimed: readonly (readonly [Key, Departure])[] = [];
      await this.#write(() => {
        claimed = this.#claim();
      });
      if (claimed.length === 0) return;
      await this.#announce(claimed);
    }
  }

  async #takeOffAll(subscribers: readonly string[]): Promise<void> {
    await this.#write(() => {
      for (const subscriber of subscribers) this.#takeOff([this.#process, subscriber]);
    });
    for (const subscriber of subscribers) this.#gone.delete(subscriber);
  }

  /** Whether there is a dead process, or something that nobody has announced. */
  #hasDeparted(): boolean {
    const isDue = Array.from(this.#departed.getRange({ limit: 1 })).length > 0;
    return isDue || Array.from(this.#leases.getKeys()).some((process) => !this.#lives(process));
  }

  /** Takes subscribers of dead processes off, and claims what whoever had claimed it has not done. */
  #claim(): readonly (readonly [Key, Departure])[] {
    const now = this.#clock.now();
    const claimedUntil = now + LEASE_MS;
    const claimed: [Key, Departure][] = [];
    for (const { key, value } of this.#departed.getRange()) {
      if (claimed.length === AT_ONCE) break;
      if (value.claimedUntil <= now) claimed.push([key, { ...value, claimedUntil }]);
    }
    const departure = randomUUID();
    for (const process of Array.from(this.#leases.getKeys())) {
      const left = AT_ONCE - claimed.length;
      if (left <= 0) break;
      if (this.#lives(process)) continue;
      this.#leases.putSync(process, DECLARED_DEAD);
      for (const [key, { records }] of this.#remove(process, left)) {
        claimed.push([key, { departure, records, claimedUntil }]);
      }
    }
    for (const [key, value] of claimed) this.#departed.putSync(key, value);
    return claimed;
  }

  async #announce(claimed: readonly (readonly [Key, Departure])[]): Promise<void> {
    for (const departure of new Set(claimed.map(([, value]) => value.departure))) {
      const records = claimed.flatMap(([, value]) =>
        value.departure === departure ? recordsOf(value) : [],
      );
      await this.#changed({ records, active: false, departure });
    }
    await this.#write(() => {
      for (const [key] of claimed) this.#departed.removeSync(key);
    });
  }

  /** Another process may have taken this one for dead, when it was only stopped for a while. */
  #renew(): readonly Entry[] {
    const lease = this.#leases.get(this.#process) ?? DECLARED_DEAD;
    this.#leases.putSync(this.#process, this.#clock.now() + LEASE_MS);
    if (lease !== DECLARED_DEAD) return [];
    const missing = [...this.#own].filter(
      ([subscriber]) => this.#entries.get([this.#process, subscriber]) === undefined,
    );
    for (const [subscriber, entry] of missing) this.#put(subscriber, entry);
    return missing.map(([, entry]) => entry);
  }

  /** Takes subscribers of a process off, and with the last of them its lease. */
  #remove(process: string, most: number): readonly (readonly [Key, Entry])[] {
    const range = { start: [process, ''] as Key, end: [process, LAST] as Key, limit: most };
    const found = Array.from(this.#entries.getRange(range));
    for (const { key } of found) this.#takeOff(key);
    if (found.length < most) this.#leases.removeSync(process);
    return found.map(({ key, value }) => [key, value]);
  }

  #put(subscriber: string, entry: Entry): void {
    const key: Key = [this.#process, subscriber];
    this.#takeOff(key);
    this.#entries.putSync(key, entry);
    for (const place of placesOf(key, entry)) this.#lists.putSync(place, true);
  }

  #takeOff(key: Key): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    for (const place of placesOf(key, entry)) this.#lists.removeSync(place);
    this.#entries.removeSync(key);
  }

  #recordsOf(key: Key): readonly SubscriptionRecord[] {
    const entry = this.#entries.get(key);
    return entry === undefined ? [] : recordsOf(entry);
  }

  #lives(process: string): boolean {
    if (process === this.#process) return true;
    return (this.#leases.get(process) ?? 0) > this.#clock.now();
  }

  async #write(change: () => unknown): Promise<void> {
    this.#refuseClosed();
    try {
      await write(this.#root, change);
    } catch (cause) {
      throw new HubgateError('transport-failed', 'The presence could not be stored', { cause });
    }
  }

  /** What has no checksum may be impossible to read. */
  #read<Value>(read: () => Value): Value {
    this.#refuseClosed();
    try {
      // What is read in one turn is one snapshot, which may be older than another process's commit.
      this.#root.resetReadTxn();
      return read();
    } catch (cause) {
      throw new HubgateError('transport-failed', 'The presence could not be read', { cause });
    }
  }

  #refuseClosed(): void {
    if (this.#closed) throw new HubgateError('transport-closed', 'The history is closed');
  }
}

/** Behind every subscriber's id, which is a URN. */
const LAST = '\u{10ffff}';

function placesOf([process, subscriber]: Key, entry: Entry): Place[] {
  const lists = [...matcherNames(recordsOf(entry))].map(listOf);
  return ['', ...lists].map((list) => [list, entry.since, entry.order, process, subscriber]);
}

/** A matcher may be longer than a key. */
function listOf(name: string): string {
  return createHash('sha256').update(name).digest('base64url');
}

/** A key as the page before has given it. */
function placeOf(after: string): Place {
  return JSON.parse(after) as Place;
}

function recordsOf({ records }: Pick<Entry, 'records'>): readonly SubscriptionRecord[] {
  // Written by enter, which was given such records.
  return JSON.parse(records) as readonly SubscriptionRecord[];
}

/** It has been told in the log. */
function ignore(): void {}
