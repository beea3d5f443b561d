import { createHash, randomUUID } from 'node:crypto';
import type { Database, RootDatabase } from 'lmdb';
import type { SubscriptionRecord } from '../../hub/presence.ts';
import {
  matcherName,
  matcherNames,
  type PresenceBoard,
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

type Key = [process: string, subscriber: string];

/** A subscriber on the board. */
interface Entry {
  /** Milliseconds since the Unix epoch, and a number that orders what came within one of them. */
  readonly since: number;
  readonly order: number;
  /** JSON, so that a payload comes back as it was. */
  readonly records: string;
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
  /** Process → when its lease runs out. */
  readonly #leases: Database<number, string>;
  readonly #process = randomUUID();
  /** What this process has entered, in case it is taken for dead. */
  readonly #own = new Map<string, Entry>();
  #order = 0;
  #changed: (records: readonly SubscriptionRecord[], active: boolean) => void = () => {};
  #stopHeartbeat: () => void = () => {};
  #closed = false;

  constructor({ root, clock, log }: LmdbPresenceOptions) {
    this.#root = root;
    this.#clock = clock;
    this.#log = log;
    this.#entries = root.openDB({ name: 'presence', encoding: 'msgpack' });
    this.#lists = root.openDB({ name: 'presence-lists', encoding: 'msgpack' });
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
    this.#own.delete(subscriber);
    await this.#write(() => this.#takeOff([this.#process, subscriber]));
  }

  async page(
    after: string | null,
    limit: number,
    matcher?: PresenceMatcher,
  ): Promise<PresencePage> {
    this.#refuseClosed();
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

  async of(subscriber: string): Promise<readonly SubscriptionRecord[]> {
    this.#refuseClosed();
    return Array.from(this.#leases.getKeys())
      .filter((process) => this.#lives(process))
      .flatMap((process) => this.#recordsOf([process, subscriber]));
  }

  watch(listener: (records: readonly SubscriptionRecord[], active: boolean) => void): void {
    this.#changed = listener;
  }

  /** Takes this process off the board. */
  async close(): Promise<void> {
    this.#stopHeartbeat();
    this.#closed = true;
    await write(this.#root, () => this.#remove(this.#process));
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
    const dead = Array.from(this.#leases.getRange()).filter(({ key }) => !this.#lives(key));
    if (this.#own.size === 0 && dead.length === 0) return;
    let gone: readonly Entry[] = [];
    let back: readonly Entry[] = [];
    await this.#write(() => {
      back = this.#renew();
      gone = dead.flatMap(({ key }) => (this.#lives(key) ? [] : this.#remove(key)));
    });
    if (gone.length > 0) this.#changed(gone.flatMap(recordsOf), false);
    if (back.length > 0) this.#changed(back.flatMap(recordsOf), true);
  }

  /** Another process may have taken this one for dead, when it was only stopped for a while. */
  #renew(): readonly Entry[] {
    if (this.#own.size === 0) return [];
    const missing = this.#leases.get(this.#process) === undefined ? [...this.#own] : [];
    for (const [subscriber, entry] of missing) this.#put(subscriber, entry);
    this.#leases.putSync(this.#process, this.#clock.now() + LEASE_MS);
    return missing.map(([, entry]) => entry);
  }

  #remove(process: string): Entry[] {
    const found = Array.from(
      this.#entries.getRange({ start: [process, ''], end: [process, LAST] }),
    );
    for (const { key } of found) this.#takeOff(key);
    this.#leases.removeSync(process);
    return found.map(({ value }) => value);
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

function recordsOf({ records }: Entry): readonly SubscriptionRecord[] {
  // Written by enter, which was given such records.
  return JSON.parse(records) as readonly SubscriptionRecord[];
}
