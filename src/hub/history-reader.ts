import type { Clock } from '../kernel/clock.ts';
import { PreparedUpdate } from './event-stream.ts';
import type { Evicted, HistoryEntry, Transport } from './transport.ts';
import { EARLIEST, isPossibleId, updateSize } from './update.ts';

/** Most entries of a page. */
const PAGE_ENTRIES = 64;
/** Target size of a page, in characters of data. Only its last entry may exceed it. */
const PAGE_SIZE = 256 * 1024;
/** Characters of data and topics in all pages that are kept for other readers of the same part. */
const KEPT_SIZE = 4 * 1024 * 1024;
const KEPT_PAGES = 64;
/** The same while one stream catches up. More would only outlive collections of the young generation. */
const KEPT_PAGES_OF_ONE = 4;
/**
 * How long a page is kept, from the time at which its reading began. Its entries may be evicted meanwhile. A reader that
 * got an old page would receive what the history has removed, and then find a gap behind it.
 */
const KEPT_MS = 1_000;

/** A part of the history, shared by all its readers: consecutive entries in order. */
export class HistoryPage {
  /** The page covers the entries after this position … */
  readonly after: number;
  /** … up to and including this one. */
  readonly until: number;
  readonly entries: readonly HistoryEntry[];
  /** Characters of data and topics. */
  readonly size: number;
  /** Positions of the newest evicted entries that belong to this page or come before it. */
  readonly evicted: Evicted;
  readonly #base: string;
  readonly #prepared: (PreparedUpdate | undefined)[] = [];

  constructor(
    { after, until, evicted }: Pick<HistoryPage, 'after' | 'until' | 'evicted'>,
    entries: readonly HistoryEntry[],
    base: string,
  ) {
    this.after = after;
    this.until = until;
    this.evicted = evicted;
    this.entries = entries;
    this.size = entries.reduce((sum, { update }) => sum + updateSize(update), 0);
    this.#base = base;
  }

  indexAfter(position: number): number {
    const index = this.entries.findIndex((entry) => entry.position > position);
    return index === -1 ? this.entries.length : index;
  }

  /** The prepared update of an entry of this page, shared by all readers of the page. */
  prepared(index: number, { update }: HistoryEntry): PreparedUpdate {
    let prepared = this.#prepared[index];
    if (prepared === undefined) {
      prepared = new PreparedUpdate(update, this.#base);
      this.#prepared[index] = prepared;
    }
    return prepared;
  }
}

/** A page that is being read. */
interface Reading {
  readonly after: number;
  readonly until: number;
  readonly page: Promise<HistoryPage>;
}

interface KeptPage {
  readonly page: HistoryPage;
  /** When its reading began. */
  readonly readMs: number;
}

/**
 * Reads the history in pages that all catching-up streams share. A thousand clients that reconnect at once
 * cost one read, and each update is parsed and encoded once.
 */
export class HistoryReader {
  readonly #transport: Transport;
  readonly #base: string;
  readonly #clock: Clock;
  /** Look-ups in progress, by id. There are at most as many as waiting clients. */
  readonly #finding = new Map<string, Promise<number | null>>();
  #readings: Reading[] = [];
  /** The oldest page first. */
  readonly #kept: KeptPage[] = [];
  #keptSize = 0;
  #willDrop = false;
  /** Entries to read at a time; fewer if recent entries were large. */
  #entries = 8;
  /** The number of pages that were read from the history. */
  begun = 0;

  /** @param base see `hubBase` */
  constructor(transport: Transport, base: string, clock: Clock) {
    this.#transport = transport;
    this.#base = base;
    this.#clock = clock;
  }

  /**
   * The position of an update, like {@link Transport.find}. Clients of a failed node ask for the same few ids
   * at once and share the result: either one that was found, or a look-up that began after their request,
   * because the update may have been stored in the meantime.
   */
  async find(eventId: string): Promise<number | null> {
    const before = this.#finding.get(eventId);
    if (before !== undefined) {
      const shared = await before.catch(() => null);
      if (shared !== null) return shared;
      const since = this.#finding.get(eventId);
      if (since !== undefined && since !== before) return since;
    }
    const found = this.#transport.find(eventId);
    this.#finding.set(eventId, found);
    const over = (): void => {
      if (this.#finding.get(eventId) === found) this.#finding.delete(eventId);
    };
    found.then(over, over);
    return found;
  }

  /**
   * A part of the history after a position. It has no entries if all up to its end have been evicted.
   *
   * @param readers number of streams that are catching up
   */
  after(position: number, readers: number): HistoryPage | Promise<HistoryPage> {
    const covers = ({ after, until }: { after: number; until: number }): boolean =>
      after <= position && position < until;
    this.#dropOld();
    const kept = this.#kept.find(({ page }) => covers(page));
    if (kept !== undefined) return kept.page;
    const present = this.#readings.find(covers);
    if (present !== undefined) return present.page;
    this.begun += 1;
    const until = Math.min(position + this.#entries, this.#transport.position);
    const reading: Reading = { after: position, until, page: this.#read(position, until, readers) };
    this.#readings.push(reading);
    const over = (): void => {
      this.#readings = this.#readings.filter((one) => one !== reading);
    };
    reading.page.then(over, over);
    return reading.page;
  }

  async #read(after: number, until: number, readers: number): Promise<HistoryPage> {
    const readMs = this.#clock.monotonic();
    const entries = await this.#transport.read(after, until - after, PAGE_SIZE);
    // Large updates make a page end early.
    const end = entries.at(-1)?.position ?? until;
    const evicted = await this.#evicted(after, end, entries);
    const page = new HistoryPage({ after, until: end, evicted }, entries, this.#base);
    if (page.size > PAGE_SIZE) this.#entries = Math.max(1, Math.floor(this.#entries / 4));
    else if (page.size < PAGE_SIZE / 4) this.#entries = Math.min(PAGE_ENTRIES, this.#entries * 2);
    this.#keep({ page, readMs }, readers > 1 ? KEPT_PAGES : KEPT_PAGES_OF_ONE);
    return page;
  }

  async #evicted(after: number, end: number, entries: readonly HistoryEntry[]): Promise<Evicted> {
    if (end - after === entries.length) return { updates: 0, events: 0 };
    const { updates, events } = await this.#transport.evicted();
    // More entries may have been evicted since the page was read: updates from the front, presence events
    // from anywhere.
    const present = new Set(entries.map(({ position }) => position));
    let missing = end;
    while (present.has(missing)) missing -= 1;
    const front = (entries[0]?.position ?? end + 1) - 1;
    return { updates: Math.min(updates, front), events: Math.min(events, missing) };
  }

  #keep(kept: KeptPage, maxPages: number): void {
    const { entries, size } = kept.page;
    // Near the end of the history, readers never ask for the same portions again.
    if (entries.length < PAGE_ENTRIES / 8 && size < PAGE_SIZE) return;
    this.#kept.push(kept);
    this.#keptSize += size;
    while (this.#kept.length > maxPages || this.#keptSize > KEPT_SIZE) this.#dropOldest();
    this.#dropLater();
  }

  #dropOldest(): void {
    this.#keptSize -= this.#kept.shift()?.page.size ?? 0;
  }

  #dropOld(): void {
    const oldestMs = this.#clock.monotonic() - KEPT_MS;
    while ((this.#kept[0]?.readMs ?? Infinity) <= oldestMs) this.#dropOldest();
  }

  /** Frees the memory of pages that nobody asks for. */
  #dropLater(): void {
    if (this.#willDrop || this.#kept.length === 0) return;
    this.#willDrop = true;
    this.#clock.after(KEPT_MS, () => {
      this.#willDrop = false;
      this.#dropOld();
      this.#dropLater();
    });
  }
}

/** Whether there is no cursor, or one that cannot be the id of an update. */
export function knowsNothing(lastEventId: string | null): boolean {
  return lastEventId === null || lastEventId === '' || !isPossibleId(lastEventId);
}

/**
 * The position after which to replay; null if the history does not contain the cursor.
 *
 * @throws HubgateError `transport-closed` or `transport-failed`
 */
export async function locate(
  reader: HistoryReader,
  lastEventId: string | null,
): Promise<number | null> {
  if (lastEventId === null || knowsNothing(lastEventId)) return null;
  const found = await reader.find(lastEventId);
  // Asks the history nevertheless: one that cannot be read must not look like an empty one.
  return lastEventId === EARLIEST ? 0 : found;
}

/** Where the replay begins: at the requested cursor if the history contains it, otherwise at `earliest`. */
export function cursorAnswer(asked: string | null, found: number | null): string | null {
  if (asked === null) return null;
  return found === null ? EARLIEST : asked;
}
