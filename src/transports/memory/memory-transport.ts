import { createProcessBoard } from '../../hub/presence-board.ts';
import {
  type Evicted,
  type HistoryEntry,
  NO_TAIL,
  ONCE_UPDATES,
  PRESENCE_EVENTS_KEPT,
  type Transport,
} from '../../hub/transport.ts';
import { isPossibleId, type Update } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';

export interface MemoryTransportOptions {
  /** Updates to keep, at least 1. Presence events are counted separately. */
  readonly size: number;
}

/** A history in the memory of this process: fast, bounded, and lost with the process. */
export function createMemoryTransport({ size }: MemoryTransportOptions): Transport {
  const updates = new EntryRing(size);
  const events = new EntryRing(PRESENCE_EVENTS_KEPT);
  /** Id → the first and the last kept entry with it. */
  const ids = new Map<string, { first: Kept; last: Kept }>();
  const evicted = { updates: 0, events: 0 };
  let position = 0;
  let lastEventId: string | null = null;
  let lastUpdateId: string | null = null;
  let closed = false;
  let tail = NO_TAIL;

  const refuseClosed = (): void => {
    if (closed) throw new HubgateError('transport-closed', 'The memory transport is closed');
  };
  const forget = ({ entry, previous, next }: Kept): void => {
    if (previous !== null) previous.next = next;
    if (next !== null) next.previous = previous;
    const { id } = entry.update;
    const places = ids.get(id);
    if (places === undefined) return;
    if (previous === null && next === null) ids.delete(id);
    else if (previous === null && next !== null) places.first = next;
    else if (next === null && previous !== null) places.last = previous;
  };
  const remember = (entry: HistoryEntry): Kept => {
    const places = ids.get(entry.update.id);
    const kept: Kept = { entry, previous: places?.last ?? null, next: null };
    if (places === undefined) ids.set(entry.update.id, { first: kept, last: kept });
    else {
      places.last.next = kept;
      places.last = kept;
    }
    return kept;
  };
  const evictEvent = (oldest: Kept): void => {
    forget(oldest);
    events.shift();
    evicted.events = oldest.entry.position;
  };
  const evictUpdate = (oldest: Kept): void => {
    forget(oldest);
    updates.shift();
    evicted.updates = oldest.entry.position;
    // A client that continued from such an event would miss the update without noticing.
    for (let event = events.oldest; event !== undefined; event = events.oldest) {
      if (event.entry.position > evicted.updates) break;
      evictEvent(event);
    }
  };

  const add = (update: Update): void => {
    position += 1;
    lastEventId = update.id;
    const isEvent = update.presence === true;
    if (!isEvent) lastUpdateId = update.id;
    const ring = isEvent ? events : updates;
    const { oldest } = ring;
    if (ring.isFull && oldest !== undefined) (isEvent ? evictEvent : evictUpdate)(oldest);
    const entry = { position, update };
    ring.add(remember(entry));
    tail.deliver([entry]);
  };

  return {
    get position() {
      return position;
    },
    get lastEventId() {
      return lastEventId;
    },
    get lastUpdateId() {
      return lastUpdateId;
    },
    async evicted(): Promise<Evicted> {
      refuseClosed();
      return { ...evicted };
    },
    // Async, so that a closed transport rejects like the others.
    async append(update: Update) {
      refuseClosed();
      add(update);
    },
    maxPublishOnce: ONCE_UPDATES,
    async appendOnce(some) {
      refuseClosed();
      for (const update of some) if (!ids.has(update.id)) add(update);
    },
    tail(given) {
      tail = given;
    },
    async find(eventId) {
      refuseClosed();
      return isPossibleId(eventId) ? (ids.get(eventId)?.first.entry.position ?? null) : null;
    },
    async read(after, limit, most = Infinity) {
      refuseClosed();
      const entries: HistoryEntry[] = [];
      let bytes = 0;
      let nextUpdate = updates.indexAfter(after);
      let nextEvent = events.indexAfter(after);
      while (entries.length < limit && bytes < most) {
        const update = updates.at(nextUpdate)?.entry;
        const event = events.at(nextEvent)?.entry;
        const isEvent = event !== undefined && event.position < (update?.position ?? Infinity);
        const entry = isEvent ? event : update;
        if (entry === undefined) break;
        if (isEvent) nextEvent += 1;
        else nextUpdate += 1;
        entries.push(entry);
        bytes += entry.update.data.length;
      }
      return entries;
    },
    presence: createProcessBoard(),
    // No other process can add anything.
    wake() {},
    async check() {
      refuseClosed();
    },
    async close() {
      closed = true;
    },
  };
}

/**
 * An entry with links to its neighbours that have the same id, so that an id is found however often it was
 * used.
 */
interface Kept {
  readonly entry: HistoryEntry;
  previous: Kept | null;
  next: Kept | null;
}

/** The newest entries of one kind, in order. The nth entry is in slot n modulo the size. */
class EntryRing {
  readonly #size: number;
  readonly #slots: Kept[] = [];
  #first = 0;
  #end = 0;

  /** @param size number of entries, at least 1 */
  constructor(size: number) {
    this.#size = size;
  }

  get isFull(): boolean {
    return this.#end - this.#first === this.#size;
  }

  get oldest(): Kept | undefined {
    return this.at(this.#first);
  }

  /** Adds the newest entry; there must be a free slot. */
  add(kept: Kept): void {
    this.#slots[this.#end % this.#size] = kept;
    this.#end += 1;
  }

  /** Removes the oldest entry and frees its slot. */
  shift(): void {
    if (this.#first < this.#end) this.#first += 1;
  }

  /** The nth entry, while it is kept. */
  at(nth: number): Kept | undefined {
    return nth >= this.#first && nth < this.#end ? this.#slots[nth % this.#size] : undefined;
  }

  /** The number of the first entry after a position. */
  indexAfter(position: number): number {
    let [low, high] = [this.#first, this.#end];
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const kept = this.at(middle);
      if (kept !== undefined && kept.entry.position <= position) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
