import type { Update } from '../hub/update.ts';

/** A log as its operator handles it, beside or without the gateway that serves it. */
export interface History {
  stats(): Promise<HistoryStats>;
  /** All that is kept as of now, oldest first, in parts of a bounded size. */
  entries(): AsyncIterable<readonly HistoryEntry[]>;
  /** Adds updates behind those that are there. */
  add(entries: readonly HistoryEntry[]): Promise<void>;
  /** Looks at everything that is kept; tells of each part how many it has looked at. */
  verify(progress: (checked: number) => void): Promise<readonly HistoryFault[]>;
  /**
   * Gives back the room that evicted updates have left.
   *
   * @throws HubgateError `history-in-use`, `not-supported`
   */
  compact(): Promise<{ readonly beforeBytes: number; readonly afterBytes: number }>;
  close(): Promise<void>;
}

export interface HistoryEntry {
  /** When it was accepted: milliseconds since the Unix epoch. */
  readonly at: number;
  readonly update: Update;
}

export interface HistoryStats {
  readonly updates: number;
  /** Position of the newest update that ever was. */
  readonly position: number;
  readonly lastEventId: string | null;
  /** Milliseconds since the Unix epoch; null when nothing is kept. */
  readonly oldestAt: number | null;
  readonly newestAt: number | null;
  readonly bytes: number;
}

export interface HistoryFault {
  readonly position: number;
  readonly message: string;
}
