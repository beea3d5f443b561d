import type { PresenceBoard } from './presence-board.ts';
import type { Update } from './update.ts';

/**
 * An ordered history of updates with a tail: the only path from a publisher to a subscriber.
 *
 * Order: all processes that share a history see its entries in the same order. Positions are whole numbers
 * that grow by one with each entry. They belong to this object and mean nothing elsewhere. Concurrency:
 * `append` may be called again before the last call has resolved; updates keep the order of the calls, and
 * so do presence events.
 * Fairness: no call blocks the event loop longer than a page of the requested size. Trust: the entries given
 * to `append` have been authorized and validated.
 *
 * Eviction: updates and presence events have separate limits. Updates are removed from the front, together
 * with the presence events before them. Beyond {@link PRESENCE_EVENTS_KEPT} the oldest presence events are
 * removed wherever they are. After a position that is kept, no update is ever missing.
 *
 * If a history loses its newest entries (because a store fails over), the entries that replace them get
 * positions of their own. For a reader, this looks as if the lost entries had been evicted.
 */
export interface Transport {
  /**
   * Adds an update. Resolves when the update is as durable as the transport promises; the tail has delivered
   * it by then.
   *
   * @throws HubgateError `transport-closed`; `transport-failed` if it was not stored and nobody has received
   * or will receive it; `transport-uncertain` if that is unknown
   */
  append(update: Update): Promise<void>;
  /**
   * Adds those of these updates whose ids the history does not have: next to each other, in this order, and
   * all of them or none. The look-up and the append are one step, so that two processes that add the same
   * updates at the same time store them once. The history knows the ids of the entries that it keeps. At most
   * {@link maxPublishOnce} updates.
   *
   * @throws as {@link append}
   */
  appendOnce(updates: readonly Update[]): Promise<void>;
  /** Updates of one call of {@link appendOnce}: no more than the history keeps, because its readers come later. */
  readonly maxPublishOnce: number;
  /** Passes every entry from now on to `tail`. A transport object has one tail. */
  tail(tail: Tail): void;
  /** Position of the last entry that the tail has passed on; 0 before the first. */
  readonly position: number;
  /**
   * Id of the entry at {@link position}, even if that entry has been evicted since; null before the first.
   */
  readonly lastEventId: string | null;
  /**
   * Id of the last entry up to {@link position} that is not a presence event; null before the first. Presence
   * events never replace it.
   */
  readonly lastUpdateId: string | null;
  /** The entries that have been evicted so far. */
  evicted(): Promise<Evicted>;
  /**
   * Position of the *earliest* kept entry with this id, compared byte for byte; null if there is none, or if
   * the id is longer than an id may be.
   */
  find(eventId: string): Promise<number | null>;
  /**
   * The entries after `position`, at most `limit` of them, none beyond {@link position}. With `bytes` the
   * page also ends when its data reach that size, but it has at least one entry if there is one. Evicted
   * entries are skipped; the position of the first entry shows that.
   *
   * @param bytes characters of data; {@link PAGE_BYTES} makes a page that does not block the event loop for
   * too long
   */
  read(after: number, limit: number, bytes?: number): Promise<readonly HistoryEntry[]>;
  /** Absent if the history is not in a database. */
  readonly database?: HistoryDatabase;
  /** The subscribers of all processes that share the history. */
  readonly presence: PresenceBoard;
  /** Sends signals to the hubs of other machines that share the history; absent if there are none. */
  readonly signals?: TransportSignals;
  /** Counters that all nodes share, if the store has them. */
  readonly counts?: TransportCounts;
  /**
   * Resolves when the tail has passed on everything that any process can have passed on by the time of the call, and
   * all signals that are stored by then have been received; null if this is already so. Absent if no other process can add entries.
   *
   * @throws HubgateError `transport-closed`, or `transport-failed` if the history cannot be asked
   */
  caughtUp?(): Promise<void> | null;
  /** Checks at once for entries of other processes, instead of at the next regular check. */
  wake(): void;
  /**
   * Checks that the history can be read and written.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  check(): Promise<void>;
  /** Finishes pending appends, then closes. Another call does nothing. */
  close(): Promise<void>;
}

/** Follows the end of a history. No function of it may throw. */
export interface Tail {
  /** Receives entries in order, several at a time if they arrived together. */
  readonly deliver: (entries: readonly HistoryEntry[]) => void;
  /**
   * Called if entries were evicted before they could be delivered: in the turn in which
   * {@link Transport.position} moves past them, and before the entries after them are delivered. What a store
   * has lost in a failover does not count.
   */
  readonly overtaken: (missed: Missed) => void;
  /**
   * Whether too many entries wait here. While this is so, entries of other processes are not read, nor those of
   * this process behind them. Signals are.
   */
  readonly isFull: () => boolean;
}

/** The tail of a history that nothing follows. */
export const NO_TAIL: Tail = { deliver: () => {}, overtaken: () => {}, isFull: () => false };

/** Updates of one call of {@link Transport.appendOnce} at most. */
export const ONCE_UPDATES = 64;

/** The database of a history, for a part of the process that has something else in it. */
export interface HistoryDatabase {
  /**
   * Whether a connection leads to this database, with the rights to append.
   *
   * @throws the error of the database
   */
  includes(connection: DatabaseConnection): Promise<boolean>;
  /**
   * The same as `appendOnce`, in one transaction with another statement: either both have an effect, or none.
   * Resolves when the tail has passed on the updates, or after a while if it cannot.
   *
   * @throws the error of the database
   */
  appendWith(
    connection: DatabaseConnection,
    statement: JoinedStatement,
    updates: readonly Update[],
  ): Promise<void>;
}

/** A connection to a database of SQL. */
export interface DatabaseConnection {
  query(
    text: string,
    values?: readonly unknown[],
    options?: { readonly name?: string },
  ): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

/** A statement with one parameter that changes data; the same text on one connection. */
export interface JoinedStatement {
  readonly text: (parameter: string) => string;
  readonly value: unknown;
}

/** Presence events that a history keeps, independent of its limits for updates. */
export const PRESENCE_EVENTS_KEPT = 1_000;
/** The same for a shared history. Processes that are further behind never pass on the older ones. */
export const SHARED_PRESENCE_EVENTS_KEPT = 10_000;

/** Positions of the newest evicted entries; 0 if there are none. */
export interface Evicted {
  readonly updates: number;
  readonly events: number;
}

/** What was evicted ahead of a tail: updates (possibly with presence events), or only presence events. */
export type Missed = 'updates' | 'events';

/**
 * What was evicted between the last position that was passed on and the next entry, if positions are missing.
 *
 * @param next position of the next existing entry
 */
export function missedBetween(
  delivered: number,
  next: number,
  { updates, events }: Evicted,
): Missed | null {
  // Updates are removed from the front, so more may be missing since the entries were read.
  if (Math.min(updates, next - 1) > delivered) return 'updates';
  return events > delivered ? 'events' : null;
}

export interface HistoryEntry {
  readonly position: number;
  readonly update: Update;
}

/** A signal for the streams of this hub on all machines: a revoked token, or a logout. */
export interface TransportSignals {
  /**
   * Sends a signal to all other nodes. Nodes that cannot be reached now receive it later. Resolves to
   * whether it is stored; otherwise it waits for the server to be back. Never rejects.
   */
  send(message: string): Promise<boolean>;
  /** Sets the single listener for signals of other nodes. */
  receive(listener: (message: string) => void): void;
}

/** Target size of a page of the history in characters of data; it may be exceeded by one update. */
export const PAGE_BYTES = 1024 * 1024;

/** Counters of events by key in time windows, for all nodes together. */
export interface TransportCounts {
  /**
   * Counts one event of a key, unless there are already `events` in a window's length. Returns the counts
   * before it. The current window began `elapsedMs` ago.
   *
   * @throws HubgateError `transport-failed` if the store cannot be reached
   */
  count(
    key: string,
    events: number,
    windowMs: number,
  ): Promise<{ readonly current: number; readonly previous: number; readonly elapsedMs: number }>;
}
