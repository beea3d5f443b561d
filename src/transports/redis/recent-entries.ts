/** Kept to find out how much of the log another server has. */
const CAPACITY = 8192;

interface RecentEntry {
  readonly key: string;
  readonly id: string;
  /** A presence event. */
  readonly isEvent: boolean;
}

/** Keys and ids of the entries that were handed out last, by their stored position. */
export class RecentEntries {
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
