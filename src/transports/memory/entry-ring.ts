/** An entry of the log and its neighbours with the same id, so that an id is found however often it was used. */
export interface Kept<Entry> {
  readonly entry: Entry;
  previous: Kept<Entry> | null;
  next: Kept<Entry> | null;
}

/** The newest entries of one kind, in order: the one that came as the nth lies in slot n modulo the size. */
export class EntryRing<Entry extends { readonly position: number }> {
  readonly #size: number;
  readonly #slots: Kept<Entry>[] = [];
  #first = 0;
  #end = 0;

  /** @param size entries, 1 at least */
  constructor(size: number) {
    this.#size = size;
  }

  get isFull(): boolean {
    return this.#end - this.#first === this.#size;
  }

  get oldest(): Kept<Entry> | undefined {
    return this.at(this.#first);
  }

  /** Adds the newest; there must be room. */
  add(kept: Kept<Entry>): void {
    this.#slots[this.#end % this.#size] = kept;
    this.#end += 1;
  }

  /** Takes the oldest off; its slot is used again. */
  shift(): void {
    if (this.#first < this.#end) this.#first += 1;
  }

  /** The one that came as the nth, while it is kept. */
  at(nth: number): Kept<Entry> | undefined {
    return nth >= this.#first && nth < this.#end ? this.#slots[nth % this.#size] : undefined;
  }

  /** As the how many-th the first one behind a position came. */
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
