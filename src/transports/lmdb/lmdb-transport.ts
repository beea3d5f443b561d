// A position is assigned inside the write transaction, so several processes may share a history.
// Each watches the file for what others have added, and workers wake each other.

import { watch } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type Evicted,
  type LogEntry,
  type Missed,
  missedBetween,
  PAGE_BYTES,
  type Transport,
} from '../../hub/transport.ts';
import { isPossibleId, type Update } from '../../hub/update.ts';
import type { Clock } from '../../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import type { Scheduler } from '../../kernel/scheduler.ts';
import { GroupCommit } from '../group-commit.ts';
import { evict, type Oldest, type Retention } from './eviction.ts';
import { LmdbPresence } from './lmdb-presence.ts';
import { type LmdbStore, openLmdbStore, write } from './lmdb-store.ts';
import { addEntries, evictableLog, isEvicted } from './stored-log.ts';
import { decodeStored, storedHead, type StoredHead } from './stored-update.ts';

export interface LmdbTransportOptions extends Retention {
  /** Directory of the history; made with mode 0700 when it is missing. */
  readonly path: string;
  /** `commit`: an acknowledged update is on disk. `async`: the disk follows soon after. */
  readonly durability: 'commit' | 'async';
  /** Told when an update was added, so that others who share the history can be woken. */
  readonly appended?: () => void;
  /** Those of the process; the store is checked in them when it is opened. */
  readonly scheduler?: Scheduler;
  readonly clock: Clock;
  readonly log: Logger;
}

/** How often the log is asked for what others have added, where the file cannot be watched. */
const POLL_MS = 100;
/** How long somebody waits until what others have added was handed out. */
const CATCH_UP_MS = 5_000;
/** Handed out in one turn of the event loop, of what others have added. */
const ENTRIES_AT_ONCE = 256;

/**
 * A log on disk. Positions are given inside the transaction that stores the updates, so several
 * processes may share it. With durability `commit` nothing is handed out or acknowledged before it
 * has been flushed to the disk.
 *
 * @throws HubgateError `transport-failed`, `history-damaged`, `history-unavailable`, `history-too-new`
 */
export async function openLmdbTransport(options: LmdbTransportOptions): Promise<Transport> {
  return new LmdbTransport(await openLmdbStore(options.path, options.scheduler), options);
}

class LmdbTransport implements Transport {
  readonly presence: LmdbPresence;
  readonly #store: LmdbStore;
  /** Of the last group, where it could not be stored. */
  #refusedBytes = 0;
  readonly #options: LmdbTransportOptions;
  readonly #commits: GroupCommit;
  #oldest: Oldest | null = null;
  #position: number;
  #lastEventId: string | null;
  #lastUpdateId: string | null;
  #deliver: (entries: readonly LogEntry[]) => void = () => {};
  #overtaken: (missed: Missed) => void = () => {};
  #closing: Promise<void> | undefined;
  #isClosed = false;
  /** A group of this process is being stored: it hands out what there is when it is done. */
  #storing = false;
  #advancing = false;
  #stopWatching: () => void = () => {};

  constructor(store: LmdbStore, options: LmdbTransportOptions) {
    this.#store = store;
    this.#options = options;
    const { clock, log } = options;
    this.#commits = new GroupCommit((group) => this.#commit(group), clock);
    this.presence = new LmdbPresence({ root: store.root, clock, log });
    const tail = store.tail.get();
    this.#position = tail?.position ?? 0;
    this.#lastEventId = tail?.eventId ?? null;
    this.#lastUpdateId = tail === undefined || tail.updates === 0 ? null : tail.updateId;
  }

  get position(): number {
    return this.#position;
  }

  get lastEventId(): string | null {
    return this.#lastEventId;
  }

  get lastUpdateId(): string | null {
    return this.#lastUpdateId;
  }

  async evicted(): Promise<Evicted> {
    this.#refuseClosed();
    return this.#evicted();
  }

  tail(
    listener: (entries: readonly LogEntry[]) => void,
    overtaken: (missed: Missed) => void = () => {},
  ): void {
    this.#deliver = listener;
    this.#overtaken = overtaken;
    this.#stopWatching();
    this.#watch();
  }

  async append(update: Update): Promise<void> {
    this.#refuseClosed();
    await this.#commits.append(update);
  }

  async find(eventId: string): Promise<number | null> {
    this.#refuseClosed();
    if (!isPossibleId(eventId)) return null;
    for (const position of this.#store.ids.getValues(eventId, { limit: 1 })) return position;
    return null;
  }

  async read(after: number, limit: number, bytes = Infinity): Promise<readonly LogEntry[]> {
    this.#refuseClosed();
    return this.#entries(after, this.#position, limit, bytes);
  }

  wake(): void {
    if (this.#isClosed) return;
    try {
      this.#advance();
    } catch (error) {
      this.#options.log.error('What others have added cannot be read', { error: messageOf(error) });
    }
  }

  caughtUp(): Promise<void> | null {
    this.#refuseClosed();
    this.wake();
    // While this process stores something, nothing is read above.
    this.#refresh();
    const end = this.#store.tail.get()?.position ?? 0;
    return end <= this.#position ? null : this.#reached(end);
  }

  async #reached(end: number): Promise<void> {
    const { clock } = this.#options;
    const lastMs = clock.monotonic() + CATCH_UP_MS;
    while (this.#position < end) {
      if (clock.monotonic() > lastMs) {
        throw new HubgateError('transport-failed', 'This process is behind the history');
      }
      // A group of this process may be on its way to the disk; what others have stored comes behind it.
      await nextTurn();
      this.#refuseClosed();
      this.wake();
    }
  }

  async check(): Promise<void> {
    this.#refuseClosed();
    try {
      // A write, not only a transaction: an empty one succeeds on a full disk. And where an update
      // did not fit it is not enough that less does.
      const { root, probe } = this.#store;
      const now = this.#options.clock.now();
      const refused = this.#refusedBytes;
      await write(root, () => probe(now, refused));
      if (refused === 0) return;
      await write(root, () => probe(now, 0));
      this.#refusedBytes = 0;
    } catch (cause) {
      throw new HubgateError('transport-failed', 'The history cannot be written', { cause });
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#finish();
    return this.#closing;
  }

  async #commit(group: readonly Update[]): Promise<void> {
    const { root } = this.#store;
    this.#storing = true;
    try {
      const { stored, oldest } = await write(root, () => this.#put(group));
      this.#oldest = oldest;
      this.#refusedBytes = 0;
      if (this.#options.durability === 'commit') await root.flushed;
      await this.#handOut(stored);
    } catch (cause) {
      this.#refusedBytes = group.reduce((sum, { data }) => sum + Buffer.byteLength(data), 0);
      throw storingError(cause);
    } finally {
      this.#storing = false;
      // What others have stored behind that group may have been told of meanwhile.
      this.wake();
    }
    this.#options.appended?.();
  }

  /** Runs inside the write transaction: one writer at a time, of all processes. */
  #put(group: readonly Update[]): { stored: readonly LogEntry[]; oldest: Oldest | null } {
    const now = this.#options.clock.now();
    const { stored, end } = addEntries(
      this.#store,
      group.map((update) => ({ update, at: now })),
    );
    const evicted = { ...end.evicted };
    const extent = { newest: end.position, updates: end.updates, now, added: group.length };
    const log = evictableLog(this.#store, evicted);
    const oldest = evict(log, this.#options, extent, this.#oldest);
    this.#store.tail.put({ ...end, evicted });
    return { stored, oldest };
  }

  /** What this process has stored, after what others have stored before it: a slice of that in each turn. */
  async #handOut(stored: readonly LogEntry[]): Promise<void> {
    const [first] = stored;
    const last = stored.at(-1);
    if (first === undefined || last === undefined) return;
    if (this.#position < first.position - 1) this.#refresh();
    while (this.#position < first.position - 1) {
      this.#step(first.position - 1);
      // Seldom more than one step: others wake this process for each of theirs.
      await nextTurn();
    }
    this.#give(stored, last.position, last.update.id);
  }

  /** Hands out what others have committed, a slice in each turn of the event loop. */
  #advance(): void {
    if (this.#storing || this.#advancing) return;
    this.#refresh();
    const tail = this.#store.tail.get();
    if (tail === undefined || tail.position <= this.#position) return;
    this.#step(tail.position);
    if (this.#position >= tail.position) {
      this.#lastEventId = tail.eventId;
      if (tail.updates > 0) this.#lastUpdateId = tail.updateId;
      return;
    }
    this.#advancing = true;
    setImmediate(() => {
      this.#advancing = false;
      this.wake();
    });
  }

  /** What this process reads in one turn is one snapshot, which may be older than a commit. */
  #refresh(): void {
    this.#store.root.resetReadTxn();
  }

  #evicted(): Evicted {
    return this.#store.tail.get()?.evicted ?? { updates: 0, events: 0 };
  }

  /** Hands out some of what is stored up to `end`; passes over what cannot be read. */
  #step(end: number): void {
    try {
      const before = this.#position;
      const entries = this.#entries(before, end, ENTRIES_AT_ONCE, PAGE_BYTES);
      const last = entries.at(-1);
      const until = last?.position ?? end;
      const next = entries[0]?.position ?? end + 1;
      const isWhole = until - before === entries.length;
      const missed = isWhole ? null : missedBetween(before, next, this.#evicted());
      this.#give(entries, until, last?.update.id ?? this.#lastEventId, missed);
    } catch (error) {
      this.#options.log.error('An update of another process was left out', {
        position: this.#position + 1,
        error: messageOf(error),
      });
      this.#position += 1;
    }
  }

  #give(
    entries: readonly LogEntry[],
    position: number,
    eventId: string | null,
    missed: Missed | null = null,
  ): void {
    this.#position = position;
    this.#lastEventId = eventId;
    const update = entries.findLast((entry) => entry.update.presence !== true);
    if (update !== undefined) this.#lastUpdateId = update.update.id;
    if (missed !== null) this.#overtaken(missed);
    if (entries.length > 0) this.#deliver(entries);
  }

  /**
   * Positions are given without a gap: what is missing and was not evicted, LMDB cannot find any more.
   *
   * @throws HubgateError `transport-failed` for updates that cannot be read back
   */
  #entries(after: number, end: number, limit: number, most: number): readonly LogEntry[] {
    const entries = this.#found(after, end, limit, most);
    const missing = this.#missing(entries, after, end);
    if (missing === null) return entries;
    // The snapshot of this turn may be older than what was just committed.
    this.#refresh();
    const again = this.#found(after, end, limit, most);
    const stillMissing = this.#missing(again, after, end);
    if (stillMissing === null) return again;
    throw new HubgateError(
      'transport-failed',
      `The update at position ${stillMissing} of the history in ${this.#options.path} cannot be found: ` +
        'its file is damaged (hubgate history verify tells how many there are)',
    );
  }

  /** The first position without an entry that was not evicted; null where there is none. */
  #missing(entries: readonly LogEntry[], after: number, end: number): number | null {
    let expected = after + 1;
    for (const { position } of entries) {
      if (position !== expected && !this.#isEvictedBefore(position)) return expected;
      expected = position + 1;
    }
    if (entries.length > 0 || expected > end) return null;
    // Others may have added more since, and evicted all that was asked for.
    for (const next of this.#store.log.getKeys({ start: end + 1, limit: 1 })) {
      return this.#isEvictedBefore(next) ? null : expected;
    }
    return expected;
  }

  /** Whether what is missing right before an entry was evicted. */
  #isEvictedBefore(position: number): boolean {
    const { log, events } = this.#store;
    const head = headOf(log.getRange({ start: position, limit: 1 }));
    const before = headOf(log.getRange({ start: position - 1, limit: 1, reverse: true }));
    if (head === null) return false;
    let oldestEvent: number | null = null;
    for (const key of events.getKeys({ limit: 1 })) oldestEvent = key;
    return isEvicted({ position, head }, before, oldestEvent);
  }

  #found(after: number, end: number, limit: number, most: number): readonly LogEntry[] {
    const entries: LogEntry[] = [];
    let bytes = 0;
    for (const { key, value } of this.#store.log.getRange({
      start: after + 1,
      end: end + 1,
      limit,
    })) {
      entries.push({ position: key, update: this.#decode(key, value) });
      bytes += value.length;
      if (bytes >= most) break;
    }
    return entries;
  }

  #decode(position: number, value: Buffer): Update {
    try {
      return decodeStored(value).update;
    } catch (cause) {
      throw new HubgateError(
        'transport-failed',
        `The update at position ${position} of the history in ${this.#options.path} cannot be read: ` +
          `${messageOf(cause)} (hubgate history verify tells how many there are)`,
        { cause },
      );
    }
  }

  /** The file is changed by every commit of any process, so nobody has to ask. */
  #watch(): void {
    try {
      const watcher = watch(this.#store.file, { persistent: false }, () => this.wake());
      // The directory may be moved away; what is open stays usable, and siblings still wake it.
      watcher.on('error', () => this.#poll());
      this.#stopWatching = () => watcher.close();
    } catch (error) {
      this.#options.log.debug('The history is asked for changes, as it cannot be watched', {
        reason: codeOf(error) ?? messageOf(error),
      });
      this.#poll();
    }
  }

  #poll(): void {
    this.#stopWatching = this.#options.clock.after(POLL_MS, () => {
      if (this.#isClosed) return;
      this.wake();
      this.#poll();
    });
  }

  #refuseClosed(): void {
    if (this.#isClosed) {
      throw new HubgateError('transport-closed', 'The history is closed');
    }
  }

  async #finish(): Promise<void> {
    // Who has left is told of in the log.
    await this.presence.close().catch((error: unknown) => {
      this.#options.log.warn('This process could not be taken off the presence board', {
        error: messageOf(error),
      });
    });
    this.#isClosed = true;
    this.#stopWatching();
    await this.#commits.drained();
    await this.#store.root.close();
  }
}

function headOf(found: Iterable<{ key: number; value: Buffer }>): StoredHead | null {
  for (const { key, value } of found) return storedHead(value, key);
  return null;
}

function storingError(cause: unknown): HubgateError {
  const message = `The update could not be stored (${messageOf(cause)}); is the disk full?`;
  return new HubgateError('transport-failed', message, { cause });
}
