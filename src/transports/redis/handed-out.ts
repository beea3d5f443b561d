import type { LogEntry } from '../../hub/transport.ts';
import { Positions } from './positions.ts';
import { RecentEntries } from './recent-entries.ts';
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
