import { encodeEvent } from './event-stream.ts';
import type { LogEntry, Transport } from './transport.ts';
import type { Update } from './update.ts';

/** Entries of a page. With updates of 1 MiB, the default limit, a page holds at most 64 MiB. */
const PAGE_ENTRIES = 64;
/** Pages kept for others who read the same part. */
const KEPT_PAGES = 64;
/** Larger pages are read again rather than kept. */
const KEPT_PAGE_BYTES = 256 * 1024;

/**
 * Reads the log in pages that all who catch up share: a thousand clients that reconnect at once
 * cost one reading, and each update is encoded once.
 */
export class LogReader {
  readonly #transport: Transport;
  /** In flight or kept, by the page's first position and how much of it there was. */
  readonly #pages = new Map<string, Promise<readonly LogEntry[]>>();
  readonly #encoded = new WeakMap<Update, Buffer>();

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Some of the entries after a position, in order, beginning with the first that is kept; empty
   * when there are none up to the tail.
   */
  async after(position: number): Promise<readonly LogEntry[]> {
    const start = pageStart(position);
    const end = Math.min(start + PAGE_ENTRIES, this.#transport.position);
    const entries = await this.#page(start, end);
    return entries.filter((entry) => entry.position > position);
  }

  /** The event of an update, encoded once while the update is in memory. */
  encoded(update: Update): Buffer {
    let event = this.#encoded.get(update);
    if (event === undefined) {
      event = encodeEvent(update);
      this.#encoded.set(update, event);
    }
    return event;
  }

  #page(start: number, end: number): Promise<readonly LogEntry[]> {
    const key = `${start}-${end}`;
    const present = this.#pages.get(key);
    if (present !== undefined) return present;
    const page = this.#transport.read(start, end - start);
    this.#pages.set(key, page);
    page.then(
      (entries) => {
        const bytes = entries.reduce((sum, { update }) => sum + update.data.length, 0);
        if (bytes > KEPT_PAGE_BYTES || end - start < PAGE_ENTRIES) this.#pages.delete(key);
        for (const oldest of this.#pages.keys()) {
          if (this.#pages.size <= KEPT_PAGES) break;
          this.#pages.delete(oldest);
        }
      },
      () => this.#pages.delete(key),
    );
    return page;
  }
}

function pageStart(position: number): number {
  return position - (position % PAGE_ENTRIES);
}
