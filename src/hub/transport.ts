import type { PresenceBoard } from './presence-board.ts';
import type { Update } from './update.ts';

/**
 * An ordered log of updates with a tail: the only way from a publisher to a subscriber.
 *
 * Order: all processes that share a log see its entries in the same order, without gaps. Positions
 * are whole numbers that grow by one with each entry. Concurrency: `append` may be called again
 * before the last one has resolved. Trust: what `append` is given has been authorised and checked.
 */
export interface Transport {
  /**
   * Adds an update. Resolves when it is as durable as the transport promises; by then the tail has
   * handed it out.
   *
   * @throws HubgateError `transport-closed`, or `transport-failed` when nothing was stored
   */
  append(update: Update): Promise<void>;
  /**
   * Hands every entry from now on to `listener`, in order, several at once where they came at once.
   * The listener must not throw. One tail per transport object.
   */
  tail(listener: (entries: readonly LogEntry[]) => void): void;
  /** Position of the last entry that the tail has handed out; 0 before the first. */
  readonly position: number;
  /** Id of the entry at {@link position}, also when that entry has been evicted since; null before the first. */
  readonly lastEventId: string | null;
  /** Position of the *earliest* kept entry with that id, compared byte for byte; null when there is none. */
  find(eventId: string): Promise<number | null>;
  /**
   * The entries after `position`, at most `limit`, none beyond {@link position}. Entries that have
   * been evicted are passed over: the first one's position tells.
   */
  read(after: number, limit: number): Promise<readonly LogEntry[]>;
  /** Who is subscribed, of all that share the log. */
  readonly presence: PresenceBoard;
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

export interface LogEntry {
  readonly position: number;
  readonly update: Update;
}
