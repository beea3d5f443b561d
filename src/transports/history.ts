import type { Clock } from '../kernel/clock.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Update } from '../hub/update.ts';
import type { StoredEntry } from './handed-out.ts';

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

/** What histories on a server have in common. */
export abstract class ServerHistory<Row> {
  /** Up to the current end of the history. Entries that are evicted in the meantime are left out. */
  protected abstract pages(): AsyncIterable<readonly Row[]>;

  protected abstract positionOf(row: Row): number;

  /** @throws if the row is damaged */
  protected abstract decode(row: Row): StoredEntry;

  async *entries(): AsyncIterable<readonly HistoryEntry[]> {
    for await (const page of this.pages()) {
      yield page.map((row) => {
        const { at, update } = this.decode(row);
        return { at, update };
      });
    }
  }

  async verify(progress: (checked: number) => void): Promise<readonly HistoryFault[]> {
    const faults: HistoryFault[] = [];
    let checked = 0;
    let previous: StoredEntry | null = null;
    for await (const page of this.pages()) {
      for (const row of page) {
        const read = this.#entryOrFault(row, previous);
        if ('message' in read) faults.push(read);
        else previous = read;
      }
      checked += page.length;
      progress(checked);
    }
    return faults;
  }

  #entryOrFault(row: Row, previous: StoredEntry | null): StoredEntry | HistoryFault {
    const position = this.positionOf(row);
    try {
      const read = this.decode(row);
      const follows = previous === null || read.position !== previous.position + 1;
      if (follows || read.previous === previous.key) return read;
      return { position, message: 'it does not follow the one before it' };
    } catch (error) {
      return { position, message: messageOf(error) };
    }
  }
}
