import type { LogEntry } from '../../hub/transport.ts';
import type { StoredEntry } from './stored-entry.ts';
import type { LogEnd } from './stored-log.ts';

/**
 * What this process has handed out of the log: how far it is, in the positions of the store and in
 * those that the hub sees, and the keys by which the log is known again.
 */
export class HandedOut {
  readonly positions = new Positions();
  readonly recent = new RecentEntries();
  #stored = 0;
  #position = 0;
  #lastEventId: string | null = null;
  #lastUpdateId: string | null = null;

  /** Position of the last entry as it is stored. */
  get stored(): number {
    return this.#stored;
  }

  /** Position of the last entry as the hub sees it. */
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

  /** Key of the last entry, where it is known. */
  get lastKey(): string | undefined {
    return this.recent.keyAt(this.#stored);
  }

  /** Whether the entry with this key was handed out at this stored position. */
  has(position: number, key: string): boolean {
    return this.#stored >= position && this.recent.keyAt(position) === key;
  }

  /** Whether an entry is the next one of the log that was read. */
  isFollowedBy(entry: StoredEntry): boolean {
    return entry.position === this.#stored + 1 && entry.previous === (this.lastKey ?? '');
  }

  /** An entry as the hub sees it. */
  seen({ position, update }: StoredEntry): LogEntry {
    return { position: this.positions.seen(position), update };
  }

  /** What is there when the process begins is the past. */
  beginAt({ position, key, id, updateId }: LogEnd): void {
    this.#stored = position;
    this.#position = position;
    this.#lastEventId = id;
    this.#lastUpdateId = updateId;
    if (key !== null && id !== null)
      this.recent.add(position, { key, id, isEvent: id !== updateId });
  }

  /** Learns the keys of entries that were there before. */
  remember(entries: readonly StoredEntry[]): void {
    for (const { position, key, update } of entries) {
      this.recent.add(position, { key, id: update.id, isEvent: update.presence === true });
    }
  }

  /** Goes on to the last of these, and says how the hub sees them. */
  advance(entries: readonly StoredEntry[]): readonly LogEntry[] {
    const last = entries.at(-1);
    if (last === undefined) return [];
    this.remember(entries);
    this.#stored = last.position;
    this.#position = this.positions.seen(last.position);
    this.#lastEventId = last.update.id;
    const update = entries.findLast((entry) => entry.update.presence !== true);
    if (update !== undefined) this.#lastUpdateId = update.update.id;
    return entries.map((entry) => this.seen(entry));
  }

  /** Goes back to the stored position `common`: the entries behind it are lost. */
  goBackTo(common: number): void {
    this.positions.rewind(common, this.#position);
    this.recent.forgetAfter(common);
    this.#stored = common;
    this.#lastEventId = this.recent.idAt(common);
    this.#lastUpdateId = this.recent.lastUpdateId();
  }
}

// Redis may lose the end of its log in a failover. Each entry has a random key and names the one
// before it, so every node notices. Entries that replace lost ones get positions of their own, and
// to the hub the lost ones look evicted.

/** A stretch of the stored log, and how far the positions that the hub sees are ahead of it. */
interface Segment {
  readonly first: number;
  /** Including; Infinity for the newest. */
  readonly last: number;
  readonly shift: number;
}

/**
 * Positions as the hub sees them. A store that fails over may give a position twice; here what
 * replaces a lost entry gets the next free position, so that they only grow.
 */
export class Positions {
  #segments: readonly Segment[] = [{ first: 1, last: Infinity, shift: 0 }];

  /** Where the hub sees a stored position. */
  seen(stored: number): number {
    const segment = this.#segments.findLast(({ first }) => first <= stored);
    return stored + (segment?.shift ?? 0);
  }

  /** The first stored position that the hub sees behind `seen`. */
  after(seen: number): number {
    for (const { first, last, shift } of this.#segments) {
      if (last + shift > seen) return Math.max(first, seen - shift + 1);
    }
    return seen + 1;
  }

  /** Everything behind the stored position `common` is lost; what comes is seen behind `newest`. */
  rewind(common: number, newest: number): void {
    const kept = this.#segments
      .filter(({ first }) => first <= common)
      .map((segment) => ({ ...segment, last: Math.min(segment.last, common) }));
    this.#segments = [...kept, { first: common + 1, last: Infinity, shift: newest - common }];
  }
}

/** Kept to find out how much of the log another server has. */
const CAPACITY = 8192;

interface RecentEntry {
  readonly key: string;
  readonly id: string;
  /** A presence event. */
  readonly isEvent: boolean;
}

/** Keys and ids of the entries that were handed out last, by their stored position. */
class RecentEntries {
  readonly capacity = CAPACITY;
  readonly #entries = new Map<number, RecentEntry>();

  add(position: number, entry: RecentEntry): void {
    this.#entries.delete(position);
    this.#entries.set(position, entry);
    if (this.#entries.size > CAPACITY) this.#entries.delete(this.oldest);
  }

  keyAt(position: number): string | undefined {
    return this.#entries.get(position)?.key;
  }

  idAt(position: number): string | null {
    return this.#entries.get(position)?.id ?? null;
  }

  /** Id of the last that is not a presence event; null where none is known. */
  lastUpdateId(): string | null {
    return [...this.#entries.values()].findLast(({ isEvent }) => !isEvent)?.id ?? null;
  }

  /** The oldest position that is known; 1 when none is. */
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
