import { PAGE_BYTES } from '../hub/transport.ts';
import type { Update } from '../hub/update.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Range, StoredEntry } from './stored-entry.ts';

/** A history as its operator manages it, with or without a running gateway. */
export interface History {
  stats(): Promise<HistoryStats>;
  /** A snapshot of all entries, oldest first, in parts of bounded size. */
  entries(): AsyncIterable<readonly DatedUpdate[]>;
  /** Appends updates. */
  add(entries: readonly DatedUpdate[]): Promise<void>;
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

/** An update of a history as its operator exports and imports it. */
export interface DatedUpdate {
  /** Time of publication, in milliseconds since the Unix epoch. */
  readonly at: number;
  readonly update: Update;
}

export interface HistoryStats {
  /** Without presence events. */
  readonly updates: number;
  /** Presence events. */
  readonly events: number;
  /** Position of the newest entry ever stored, presence events included. */
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

/** Entries that are read in one query. */
const AT_ONCE = 256;

/** A history on a server, whatever the server is: each entry contains the key of the one before it. */
export abstract class ServerHistory<Row> implements History {
  abstract stats(): Promise<HistoryStats>;
  abstract add(entries: readonly DatedUpdate[]): Promise<void>;
  abstract close(): Promise<void>;
  /** Name of the store in messages. */
  protected abstract readonly store: string;
  /** Position of the last entry. */
  protected abstract end(): Promise<number>;
  /** The entries of a range as the server returns them, as far as `limit` and `bytes` allow. */
  protected abstract rows(range: Range, limit: number, bytes: number): Promise<readonly Row[]>;
  protected abstract positionOf(row: Row): number;
  /** @throws HubgateError `history-damaged` */
  protected abstract decode(row: Row): StoredEntry;

  async *entries(): AsyncIterable<readonly DatedUpdate[]> {
    for await (const page of this.#pages()) yield page.map((row) => this.decode(row));
  }

  async verify(progress: (checked: number) => void): Promise<readonly HistoryFault[]> {
    const faults: HistoryFault[] = [];
    let checked = 0;
    let previous: StoredEntry | null = null;
    for await (const page of this.#pages()) {
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

  async compact(): Promise<never> {
    throw new HubgateError(
      'not-supported',
      `${this.store} frees space by itself; there is nothing to compact`,
    );
  }

  /** Up to the current end of the history. Entries that are evicted in the meantime are left out. */
  async *#pages(): AsyncIterable<readonly Row[]> {
    const end = await this.end();
    for (let from = 0; from < end; ) {
      const page = await this.rows([from + 1, end], AT_ONCE, PAGE_BYTES);
      const last = page.at(-1);
      if (last === undefined) return;
      yield page;
      from = this.positionOf(last);
    }
  }

  #entryOrFault(row: Row, previous: StoredEntry | null): StoredEntry | HistoryFault {
    const position = this.positionOf(row);
    try {
      const read = this.decode(row);
      const isNext = previous !== null && read.position === previous.position + 1;
      if (!isNext || read.previous === previous.key) return read;
      return { position, message: 'it does not follow the one before it' };
    } catch (error) {
      return { position, message: messageOf(error) };
    }
  }
}
