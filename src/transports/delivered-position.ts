import type { HistoryEntry } from '../hub/transport.ts';
import { setNewest } from '../kernel/collections.ts';
import type { EntryMark, HistoryEnd, StoredEntry } from './stored-entry.ts';

/**
 * What this process has delivered of the history: the last position, both in the store and from the view of
 * the hub, and the keys that identify the history.
 */
export class DeliveredPosition {
  readonly positions = new Positions();
  readonly recent = new RecentEntries();
  #stored = 0;
  #position = 0;
  #lastEventId: string | null = null;
  #lastUpdateId: string | null = null;

  /** Stored position of the last entry. */
  get stored(): number {
    return this.#stored;
  }

  /** Position of the last entry from the view of the hub. */
  get position(): number {
    return this.#position;
  }

  get lastEventId(): string | null {
    return this.#lastEventId;
  }

  /** Id of the last entry that is not a presence event. */
  get lastUpdateId(): string | null {
    return this.#lastUpdateId;
  }

  /** Key of the last entry, if it is known. */
  get lastKey(): string | undefined {
    return this.recent.keyAt(this.#stored);
  }

  /** Whether the entry with this key was delivered at this stored position. */
  has(position: number, key: string): boolean {
    return this.#stored >= position && this.recent.keyAt(position) === key;
  }

  /** Whether an entry is the next one of the history that was read. */
  isFollowedBy(entry: StoredEntry): boolean {
    return entry.position === this.#stored + 1 && entry.previous === (this.lastKey ?? '');
  }

  /** Whether others were evicted before or between these entries: other processes are further ahead than this one. */
  hasGapBefore(entries: readonly StoredEntry[]): boolean {
    const last = entries.at(-1);
    return last !== undefined && last.position - this.#stored !== entries.length;
  }

  /** An entry from the view of the hub. */
  seen({ position, update }: StoredEntry): HistoryEntry {
    return { position: this.positions.seen(position), update };
  }

  /** Begins at the end that a starting process finds. Earlier entries are not delivered. */
  beginAt({ position, key, id, updateId }: HistoryEnd): void {
    this.#stored = position;
    this.#position = position;
    this.#lastEventId = id;
    this.#lastUpdateId = updateId;
    if (key !== null && id !== null)
      this.recent.add(position, { key, id, isEvent: id !== updateId });
  }

  /** Records the keys of earlier entries. */
  remember(marks: readonly EntryMark[]): void {
    for (const { position, ...entry } of marks) this.recent.add(position, entry);
  }

  /** Advances to the last of these entries, and returns them from the view of the hub. */
  advance(entries: readonly StoredEntry[]): readonly HistoryEntry[] {
    const last = entries.at(-1);
    if (last === undefined) return [];
    for (const { position, key, update } of entries) {
      this.recent.add(position, { key, id: update.id, isEvent: update.presence === true });
    }
    this.#stored = last.position;
    this.#position = this.positions.seen(last.position);
    this.#lastEventId = last.update.id;
    const update = entries.findLast((entry) => entry.update.presence !== true);
    if (update !== undefined) this.#lastUpdateId = update.update.id;
    return entries.map((entry) => this.seen(entry));
  }

  /** Goes back to the stored position `common`; the entries after it are lost. */
  goBackTo(common: number): void {
    this.positions.rewind(common, this.#position);
    this.recent.forgetAfter(common);
    this.#stored = common;
    this.#lastEventId = this.recent.idAt(common);
    this.#lastUpdateId = this.recent.lastUpdateId();
  }
}

// A store may lose the end of a history in a failover. Each entry has a random key and contains the key of its
// predecessor, so every node notices. Entries that replace lost ones get positions of their own. For the hub,
// the lost ones seem to be evicted.

/** A section of the stored history, and how far the hub's positions are ahead of it. */
interface Segment {
  readonly first: number;
  /** Inclusive; Infinity for the newest. */
  readonly last: number;
  readonly shift: number;
}

/**
 * Positions from the view of the hub. After a failover, a store may assign a position twice. Here, an entry
 * that replaces a lost one gets the next free position, so that positions only grow.
 */
export class Positions {
  #segments: readonly Segment[] = [{ first: 1, last: Infinity, shift: 0 }];

  /** The hub's position for a stored position. */
  seen(stored: number): number {
    const segment = this.#segments.findLast(({ first }) => first <= stored);
    return stored + (segment?.shift ?? 0);
  }

  /** The first stored position after the hub's position `seen`. */
  after(seen: number): number {
    for (const { first, last, shift } of this.#segments) {
      if (last + shift > seen) return Math.max(first, seen - shift + 1);
    }
    return seen + 1;
  }

  /** Everything after the stored position `common` is lost. For the hub, new entries come after `newest`. */
  rewind(common: number, newest: number): void {
    const kept = this.#segments
      .filter(({ first }) => first <= common)
      .map((segment) => ({ ...segment, last: Math.min(segment.last, common) }));
    this.#segments = [...kept, { first: common + 1, last: Infinity, shift: newest - common }];
  }
}

/** Keys that are kept in order to find out how much of the history another server has. */
const CAPACITY = 8192;

type RecentEntry = Omit<EntryMark, 'position'>;

/** Keys and ids of the entries that were delivered last, by their stored position. */
class RecentEntries {
  readonly capacity = CAPACITY;
  readonly #entries = new Map<number, RecentEntry>();

  add(position: number, entry: RecentEntry): void {
    setNewest(this.#entries, position, entry, CAPACITY);
  }

  keyAt(position: number): string | undefined {
    return this.#entries.get(position)?.key;
  }

  idAt(position: number): string | null {
    return this.#entries.get(position)?.id ?? null;
  }

  /** Id of the last entry that is not a presence event; null if it is unknown. */
  lastUpdateId(): string | null {
    return [...this.#entries.values()].findLast(({ isEvent }) => !isEvent)?.id ?? null;
  }

  /** The oldest known position; 1 if there is none. */
  get oldest(): number {
    for (const position of this.#entries.keys()) return position;
    return 1;
  }

  forgetAfter(position: number): void {
    for (const known of this.#entries.keys()) {
      if (known > position) this.#entries.delete(known);
    }
  }
}
