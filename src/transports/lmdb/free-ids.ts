import { ID_BYTES, whole } from './page-layout.ts';

/**
 * A list of free pages: its length, then page numbers. A negative number is the length of a run of pages that
 * begins with the next number, and 0 is unused.
 */
export class FreeIds {
  readonly #take: (page: number, pages: number) => void;
  readonly #size: number;
  #left = -1;
  #pages = 1;

  constructor(size: number, take: (page: number, pages: number) => void) {
    this.#size = size;
    this.#take = take;
  }

  get done(): boolean {
    return this.#left === 0;
  }

  /** @returns the fault, or null */
  add(view: DataView, at: number, length: number): string | null {
    let from = at;
    if (this.#left < 0) {
      if (length < ID_BYTES) return 'a list of free pages is too short';
      this.#left = whole(view, from);
      from += ID_BYTES;
      if (this.#left > Math.floor(this.#size / ID_BYTES) - 1) {
        return 'a list of free pages is longer than its value';
      }
    }
    for (; from < at + length && this.#left > 0; from += ID_BYTES) {
      this.#left -= 1;
      const high = view.getInt32(from + 4, true);
      const entry = high * 0x1_0000_0000 + view.getUint32(from, true);
      if (this.#pages > 1 || entry > 0) {
        if (entry <= 0) return 'a list of free pages is impossible';
        this.#take(entry, this.#pages);
        this.#pages = 1;
      } else if (entry < 0) this.#pages = -entry;
    }
    return null;
  }

  end(): string | null {
    return this.#pages > 1 ? 'a list of free pages ends in the middle' : null;
  }
}
