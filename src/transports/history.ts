import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import type { Update } from '../hub/update.ts';

/** A history as its operator manages it, with or without a running gateway. */
export interface History {
  stats(): Promise<HistoryStats>;
  /** A snapshot of all entries, oldest first, in parts of bounded size. */
  entries(): AsyncIterable<readonly HistoryEntry[]>;
  /** Appends updates. */
  add(entries: readonly HistoryEntry[]): Promise<void>;
  /** Checks all entries; yields the number of checked entries of each part. */
  verify(progress: (checked: number) => void): Promise<readonly HistoryFault[]>;
  /**
   * Returns the space of evicted updates to the file system.
   *
   * @throws HubgateError `history-in-use`, `not-supported`
   */
  compact(): Promise<{ readonly beforeBytes: number; readonly afterBytes: number }>;
  close(): Promise<void>;
}

export interface HistoryEntry {
  /** Time of publication, in milliseconds since the Unix epoch. */
  readonly at: number;
  readonly update: Update;
}

export interface HistoryStats {
  readonly updates: number;
  /** Position of the newest update ever stored. */
  readonly position: number;
  readonly lastEventId: string | null;
  /** Milliseconds since the Unix epoch; null for an empty history. */
  readonly oldestAt: number | null;
  readonly newestAt: number | null;
  readonly bytes: number;
}

export interface HistoryFault {
  readonly position: number;
  readonly message: string;
}

/** What the commands of an operator open a history with. */
export interface HistorySurroundings {
  readonly clock: Clock;
  /** Whether a history that does not exist is created. */
  readonly create: boolean;
}

/** The error for a stream on a server that does not exist, and is not created. */
export function streamNotFound(stream: string, server: string): HubgateError {
  const message = `The history ${stream} was not found in ${server}; no gateway has stored an update there, so check the name of the stream and the address of the server`;
  return new HubgateError('history-not-found', message);
}
