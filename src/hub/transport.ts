import type { PresenceBoard } from './presence-board.ts';
import type { Update } from './update.ts';

/**
 * An ordered log of updates with a tail: the only way from a publisher to a subscriber.
 *
 * Order: all processes that share a log see its entries in the same order. Positions are whole
 * numbers that grow by one with each entry; they are this object's own and mean nothing elsewhere.
 * Concurrency: `append` may be called again before the last one has resolved; what was appended
 * first stands first. Fairness: no call holds the event loop longer than a page that it was asked
 * for. Trust: what `append` is given has been authorised and checked.
 *
 * Eviction: updates and presence events have limits of their own. Updates go from the front, and presence
 * events that stand before them go with them. Beyond {@link PRESENCE_EVENTS_KEPT} the oldest presence events go from
 * wherever they stand: behind a position that is kept, no update is ever missing.
 *
 * A log that loses its newest entries (a store that fails over) gives what replaces them positions
 * of their own: to a reader it is as if the lost ones had been evicted.
 */
export interface Transport {
  /**
   * Adds an update. Resolves when it is as durable as the transport promises; by then the tail has
   * handed it out.
   *
   * @throws HubgateError `transport-closed`; `transport-failed` when it was not stored and nobody
   * has received or will receive it; `transport-uncertain` when that cannot be known
   */
  append(update: Update): Promise<void>;
  /**
   * Hands every entry from now on to `listener`, in order, several at once where they came at once.
   * The listener must not throw. One tail per transport object.
   *
   * @param overtaken is told where entries were evicted before they could be handed out, in the turn in which
   * {@link position} passes them, and before what stands behind them is handed out. What a store has lost when
   * it failed over does not count.
   */
  tail(
    listener: (entries: readonly LogEntry[]) => void,
    overtaken?: (missed: Missed) => void,
  ): void;
  /** Position of the last entry that the tail has handed out; 0 before the first. */
  readonly position: number;
  /** Id of the entry at {@link position}, also when that entry has been evicted since; null before the first. */
  readonly lastEventId: string | null;
  /**
   * Id of the last entry up to {@link position} that is not a presence event; null before the first.
   * It outlives any number of presence events.
   */
  readonly lastUpdateId: string | null;
  /** What has been evicted so far. */
  evicted(): Promise<Evicted>;
  /**
   * Position of the *earliest* kept entry with that id, compared byte for byte; null when there is
   * none, and for every id that is longer than an id may be.
   */
  find(eventId: string): Promise<number | null>;
  /**
   * The entries after `position`, at most `limit`, none beyond {@link position}. With `bytes` the page
   * also ends when its data have that many, but always has one entry if there is one. Entries that
   * have been evicted are passed over: the first one's position tells.
   *
   * @param bytes characters of data; {@link PAGE_BYTES} is a page that holds the event loop for no
   * longer than it may
   */
  read(after: number, limit: number, bytes?: number): Promise<readonly LogEntry[]>;
  /** Who is subscribed, of all that share the log. */
  readonly presence: PresenceBoard;
  /** A way to tell the hubs on other machines that share the log; absent where there are none. */
  readonly signals?: TransportSignals;
  /** Counts beside the log that all nodes share, where the store can. */
  readonly counts?: TransportCounts;
  /**
   * Resolves when the tail has handed out all that anybody can have been handed by the time of the call; null where
   * it has already. Absent where nobody else can add anything.
   *
   * @throws HubgateError `transport-closed`, or `transport-failed` when the log cannot be asked
   */
  caughtUp?(): Promise<void> | null;
  /** Looks at once for what other processes have added, instead of at the next time by itself. */
  wake(): void;
  /**
   * Proves that the log can be read and written.
   *
   * @throws HubgateError `transport-closed` or `transport-failed`
   */
  check(): Promise<void>;
  /** Finishes what was appended, then closes. Calling it again does nothing. */
  close(): Promise<void>;
}

/** Presence events that a log keeps, whatever its limits for updates are. */
export const PRESENCE_EVENTS_KEPT = 1_000;
/** The same where others share the log: what they have not read by then, they never hand out. */
export const SHARED_PRESENCE_EVENTS_KEPT = 10_000;

/** Positions of the newest entries that were evicted; 0 for none. */
export interface Evicted {
  readonly updates: number;
  readonly events: number;
}

/** What a tail was overtaken by: updates, perhaps with presence events, or presence events alone. */
export type Missed = 'updates' | 'events';

/**
 * What was evicted between the last position that was handed out and what comes next, where positions are missing.
 *
 * @param next position of the first entry that is there
 */
export function missedBetween(
  handedOut: number,
  next: number,
  { updates, events }: Evicted,
): Missed | null {
  // Updates go from the front. More may have gone since the entries were read.
  if (Math.min(updates, next - 1) > handedOut) return 'updates';
  return events > handedOut ? 'events' : null;
}

export interface LogEntry {
  readonly position: number;
  readonly update: Update;
}

/** What concerns streams of this hub wherever they are: a token that is revoked, a logout. */
export interface TransportSignals {
  /** Tells all others; those that cannot be reached now are told when they can. Never throws. */
  send(message: string): void;
  /** Is told what others send. One listener. */
  receive(listener: (message: string) => void): void;
}

/** Characters of data that a page of the log should not exceed by more than one update. */
export const PAGE_BYTES = 1024 * 1024;

/** Events of keys in windows, counted for all nodes at once. */
export interface TransportCounts {
  /**
   * Counts one event of a key unless there are as many as `events` within a window's length; says
   * what there was before. The window that runs began `elapsedMs` ago.
   *
   * @throws HubgateError `transport-failed` when the store is away
   */
  count(
    key: string,
    events: number,
    windowMs: number,
  ): Promise<{ readonly current: number; readonly previous: number; readonly elapsedMs: number }>;
}
