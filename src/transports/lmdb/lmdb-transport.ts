// A position is assigned inside the write transaction, so several processes can share a history. Each watches
// the file for entries of the others, and workers wake each other.

import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type Evicted,
  type HistoryEntry,
  type Missed,
  missedBetween,
  NO_TAIL,
  PAGE_BYTES,
  type Tail,
  type Transport,
  ONCE_UPDATES,
} from '../../hub/transport.ts';
import { isPossibleId, type Update } from '../../hub/update.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import type { Scheduler } from '../../kernel/scheduler.ts';
import { GroupCommit } from '../group-commit.ts';
import {
  evict,
  type Oldest,
  type Retention,
  addEntries,
  evictableHistory,
  isEvicted,
  decodeStored,
  storedHead,
  type StoredHead,
} from './stored-history.ts';
import { LmdbPresence } from './lmdb-presence.ts';
import { type LmdbStore, openLmdbStore, StoreWatch, write } from './lmdb-store.ts';

export interface LmdbTransportOptions extends Retention {
  /** Directory of the history; created with mode 0700 if it is missing. */
  readonly path: string;
  /** `commit`: an acknowledged update is on disk. `async`: it is written to the disk soon afterwards. */
  readonly durability: 'commit' | 'async';
  /** Called when an update was added, so that other processes with the same history can be woken. */
  readonly appended?: () => void;
  /** The scheduler of the process; the store is checked in its turns when it is opened. */
  readonly scheduler?: Scheduler;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * An update changes more pages than those of its text: the trees of the history and of its ids. A probe of its text alone
 * may still fit on a disk that refuses it.
 */
const PAGES_OF_UPDATE_BYTES = 64 * 1024;
/** How long a caller waits until entries of other processes have been delivered. */
const CATCH_UP_MS = 5_000;
/** Entries of other processes that are delivered in one turn of the event loop. */
const ENTRIES_AT_ONCE = 256;

/**
 * A history on disk. Positions are assigned inside the transaction that stores the updates, so several
 * processes can share it. With durability `commit`, nothing is acknowledged before it has been flushed to the
 * disk, nor delivered by the process that stored it. Others may deliver it a moment earlier.
 *
 * @throws HubgateError `transport-failed`, `history-damaged`, `history-unavailable`, `history-too-new`
 */
export async function openLmdbTransport(options: LmdbTransportOptions): Promise<Transport> {
  return new LmdbTransport(await openLmdbStore(options.path, options.scheduler), options);
}

class LmdbTransport implements Transport {
  readonly presence: LmdbPresence;
  readonly #store: LmdbStore;
  /** Bytes that the last group needs if it could not be stored; otherwise 0. */
  #refusedBytes = 0;
  readonly #options: LmdbTransportOptions;
  readonly #commits: GroupCommit;
  #oldest: Oldest | null = null;
  #position: number;
  #lastEventId: string | null;
  #lastUpdateId: string | null;
  #tail = NO_TAIL;
  #closing: Promise<void> | undefined;
  #isClosed = false;
  /** Whether the file was not in its place when that was checked last. */
  #isMoved = false;
  /** A group of this process is being stored. Afterwards, all new entries are delivered. */
  #isStoring = false;
  #isAdvancing = false;
  /** The entry that could not be read at the last attempt; 0 for none. */
  #unreadable = 0;
  readonly #watch: StoreWatch;

  constructor(store: LmdbStore, options: LmdbTransportOptions) {
    this.#store = store;
    this.#options = options;
    const { clock, log } = options;
    this.#commits = new GroupCommit((group) => this.#commit(group), clock);
    this.#watch = new StoreWatch(store.file, () => this.wake(), { clock, log });
    this.presence = new LmdbPresence({ root: store.root, databases: store.presence, clock, log });
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

  tail(tail: Tail): void {
    this.#tail = tail;
    this.#watch.start();
  }

  async append(update: Update): Promise<void> {
    this.#refuseClosed();
    await this.#commits.append(update);
  }

  readonly maxPublishOnce = ONCE_UPDATES;

  async appendOnce(updates: readonly Update[]): Promise<void> {
    this.#refuseClosed();
    await this.#commits.appendOnce(updates);
  }

  async find(eventId: string): Promise<number | null> {
    this.#refuseClosed();
    if (!isPossibleId(eventId)) return null;
    const found = this.#positionOf(eventId);
    if (found !== null) return found;
    // The snapshot of this turn may be older than the last commit.
    this.#refresh();
    return this.#positionOf(eventId);
  }

  #positionOf(eventId: string): number | null {
    for (const position of this.#store.ids.getValues(eventId, { limit: 1 })) return position;
    return null;
  }

  async read(after: number, limit: number, bytes = Infinity): Promise<readonly HistoryEntry[]> {
    this.#refuseClosed();
    return this.#entries(after, this.#position, limit, bytes);
  }

  wake(): void {
    if (this.#isClosed) return;
    try {
      this.#advance();
    } catch (error) {
      this.#options.log.error('Updates of other processes cannot be read', {
        error: messageOf(error),
      });
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
    this.#refuseMoved();
    try {
      // A real write, because an empty transaction succeeds on a full disk. If an update did not fit, a
      // smaller write is not a sufficient test.
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

  /**
   * What is stored in a file that is no longer in its place is lost with the process, and no process that starts now sees
   * it.
   *
   * @throws HubgateError `transport-failed`
   */
  #refuseMoved(): void {
    const { file } = this.#store;
    const wasMoved = this.#isMoved;
    this.#isMoved = !this.#store.isInPlace();
    const { log } = this.#options;
    if (!this.#isMoved) {
      if (wasMoved) log.info('The history is in its place again', { file });
      return;
    }
    const message = `${file} was moved, deleted or replaced while this process has it open: put it back, or restart the gateway`;
    const moved = new HubgateError('transport-failed', message);
    if (!wasMoved) log.error(message, { code: moved.code });
    throw moved;
  }

  async #commit(group: readonly Update[]): Promise<void> {
    this.#refuseMoved();
    const { root } = this.#store;
    this.#isStoring = true;
    try {
      const { stored, oldest } = await write(root, () => this.#put(group));
      this.#oldest = oldest;
      this.#refusedBytes = 0;
      if (this.#options.durability === 'commit') await root.flushed;
      await this.#deliver(stored);
    } catch (cause) {
      const bytes = group.reduce((sum, { data }) => sum + Buffer.byteLength(data), 0);
      this.#refusedBytes = bytes + PAGES_OF_UPDATE_BYTES;
      throw storingError(cause);
    } finally {
      this.#isStoring = false;
      // In the meantime, a wake-up for entries that others have stored after that group may have been
      // ignored.
      this.wake();
    }
    this.#options.appended?.();
  }

  /** Runs inside the write transaction: there is one writer at a time, over all processes. */
  #put(group: readonly Update[]): { stored: readonly HistoryEntry[]; oldest: Oldest | null } {
    const now = this.#options.clock.now();
    const { stored, end } = addEntries(
      this.#store,
      group.map((update) => ({ update, at: now })),
    );
    const evicted = { ...end.evicted };
    if (stored.length === 0) return { stored, oldest: this.#oldest };
    const extent = { newest: end.position, updates: end.updates, now, added: stored.length };
    const history = evictableHistory(this.#store, evicted);
    const oldest = evict(history, this.#options, extent, this.#oldest);
    this.#store.tail.put({ ...end, evicted });
    return { stored, oldest };
  }

  /**
   * Delivers the entries that this process has stored, after those that others have stored before them: one
   * slice of those in each turn.
   */
  async #deliver(stored: readonly HistoryEntry[]): Promise<void> {
    const [first] = stored;
    const last = stored.at(-1);
    if (first === undefined || last === undefined) return;
    if (this.#position < first.position - 1) this.#refresh();
    while (this.#position < first.position - 1) {
      // A hub that closes may deliver nothing more, so the end does not wait for it.
      if (!this.#tail.isFull() || this.#isClosed) this.#step(first.position - 1);
      // Rarely more than one step, because others wake this process for each of their entries.
      await nextTurn();
    }
    this.#give(stored, last.position, last.update.id);
  }

  /** Delivers entries that other processes have committed, one slice in each turn of the event loop. */
  #advance(): void {
    if (this.#isStoring || this.#isAdvancing) return;
    if (this.#tail.isFull()) return this.#advanceLater();
    this.#refresh();
    const tail = this.#store.tail.get();
    if (tail === undefined || tail.position <= this.#position) return;
    this.#step(tail.position);
    if (this.#position >= tail.position) {
      this.#lastEventId = tail.eventId;
      if (tail.updates > 0) this.#lastUpdateId = tail.updateId;
      return;
    }
    this.#advanceLater();
  }

  #advanceLater(): void {
    this.#isAdvancing = true;
    setImmediate(() => {
      this.#isAdvancing = false;
      this.wake();
    });
  }

  /** All reads of one turn use the same snapshot, which may be older than a commit. */
  #refresh(): void {
    this.#store.root.resetReadTxn();
  }

  #evicted(): Evicted {
    return this.#store.tail.get()?.evicted ?? { updates: 0, events: 0 };
  }

  /**
   * Passes on some of the entries up to `end`. An entry that cannot be read is read once more in a later turn, because
   * another process may have been changing the file, and then skipped.
   */
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
      const position = this.#position + 1;
      const isFirst = this.#unreadable !== position;
      this.#unreadable = position;
      this.#refresh();
      if (isFirst) return;
      const fields = { position, error: messageOf(error) };
      this.#options.log.error('An update of another process was skipped', fields);
      this.#position = position;
    }
  }

  #give(
    entries: readonly HistoryEntry[],
    position: number,
    eventId: string | null,
    missed: Missed | null = null,
  ): void {
    this.#position = position;
    this.#lastEventId = eventId;
    const update = entries.findLast((entry) => entry.update.presence !== true);
    if (update !== undefined) this.#lastUpdateId = update.update.id;
    if (missed !== null) this.#tail.overtaken(missed);
    if (entries.length > 0) this.#tail.deliver(entries);
  }

  /**
   * Positions have no gaps, so LMDB has lost an entry that is missing and was not evicted.
   *
   * @throws HubgateError `transport-failed` for updates that cannot be read
   */
  #entries(after: number, end: number, limit: number, most: number): readonly HistoryEntry[] {
    const entries = this.#found(after, end, limit, most);
    const missing = this.#missing(entries, after, end);
    if (missing === null) return entries;
    // The snapshot of this turn may be older than the last commit.
    this.#refresh();
    const again = this.#found(after, end, limit, most);
    const stillMissing = this.#missing(again, after, end);
    if (stillMissing === null) return again;
    throw new HubgateError(
      'transport-failed',
      `The update at position ${stillMissing} of the history in ${this.#options.path} cannot be found: ` +
        'its file is damaged (hubgate history verify counts such updates)',
    );
  }

  /** The first position whose entry is missing although it was not evicted; null if there is none. */
  #missing(entries: readonly HistoryEntry[], after: number, end: number): number | null {
    let expected = after + 1;
    for (const { position } of entries) {
      if (position !== expected && !this.#isEvictedBefore(position)) return expected;
      expected = position + 1;
    }
    if (entries.length > 0 || expected > end) return null;
    // Other processes may have added more since then, and evicted everything that was requested.
    for (const next of this.#store.log.getKeys({ start: end + 1, limit: 1 })) {
      return this.#isEvictedBefore(next) ? null : expected;
    }
    return expected;
  }

  /** Whether the missing entries directly before an entry were evicted. */
  #isEvictedBefore(position: number): boolean {
    const { log, events } = this.#store;
    const head = headOf(log.getRange({ start: position, limit: 1 }));
    const before = headOf(log.getRange({ start: position - 1, limit: 1, reverse: true }));
    if (head === null) return false;
    let oldestEvent: number | null = null;
    for (const key of events.getKeys({ limit: 1 })) oldestEvent = key;
    return isEvicted({ position, head }, before, oldestEvent);
  }

  #found(after: number, end: number, limit: number, most: number): readonly HistoryEntry[] {
    const entries: HistoryEntry[] = [];
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
          `${messageOf(cause)} (hubgate history verify counts such updates)`,
        { cause },
      );
    }
  }

  #refuseClosed(): void {
    if (this.#isClosed) throw new HubgateError('transport-closed', 'The history is closed');
  }

  async #finish(): Promise<void> {
    // Removed subscribers are announced in the history.
    await this.presence.close().catch((error: unknown) => {
      this.#options.log.warn('The presence of this process could not be removed', {
        error: messageOf(error),
      });
    });
    this.#isClosed = true;
    this.#watch.stop();
    await this.#commits.drained();
    await this.#store.close();
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
