/**
 * An entry with links to its neighbours that have the same id, so that an id is found however often it was
 * used.
 */
export interface Kept<Entry> {
  readonly entry: Entry;
  previous: Kept<Entry> | null;
  next: Kept<Entry> | null;
}

/** The newest entries of one kind, in order. The nth entry is in slot n modulo the size. */
export class EntryRing<Entry extends { readonly position: number }> {
  readonly #size: number;
  readonly #slots: Kept<Entry>[] = [];
  #first = 0;
  #end = 0;

  /** @param size number of entries, at least 1 */
  constructor(size: number) {
    this.#size = size;
  }

  get isFull(): boolean {
    return this.#end - this.#first === this.#size;
  }

  get oldest(): Kept<Entry> | undefined {
    return this.at(this.#first);
  }

  /** Adds the newest entry; there must be a free slot. */
  add(kept: Kept<Entry>): void {
    this.#slots[this.#end % this.#size] = kept;
    this.#end += 1;
  }

  /** Removes the oldest entry and frees its slot. */
  shift(): void {
    if (this.#first < this.#end) this.#first += 1;
  }

  /** The nth entry, while it is kept. */
  at(nth: number): Kept<Entry> | undefined {
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
