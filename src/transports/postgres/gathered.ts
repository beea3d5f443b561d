/**
 * Requests that arrive while one is being answered form the next one, because each costs a round trip and a flush.
 */
export class Gathered<Item, Result> {
  readonly #answer: (items: readonly Item[]) => Promise<readonly Result[]>;
  readonly #most: number;
  #waiting: Waiting<Item, Result>[] = [];
  #running = false;

  /**
   * @param answer resolves to one result for each item
   * @param most items of one request, unless a single caller has more
   */
  constructor(answer: (items: readonly Item[]) => Promise<readonly Result[]>, most: number) {
    this.#answer = answer;
    this.#most = most;
  }

  /** @throws what `answer` throws, which concerns all that were asked together */
  ask(items: readonly Item[]): Promise<readonly Result[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ items, resolve, reject });
      if (!this.#running) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#running = true;
    while (this.#waiting.length > 0) {
      const together = this.#next();
      try {
        const results = await this.#answer(together.flatMap(({ items }) => items));
        let from = 0;
        for (const { items, resolve } of together) {
          resolve(results.slice(from, from + items.length));
          from += items.length;
        }
      } catch (error) {
        for (const { reject } of together) reject(error);
      }
    }
    this.#running = false;
  }

  #next(): readonly Waiting<Item, Result>[] {
    let count = 0;
    let items = 0;
    for (const waiting of this.#waiting) {
      items += waiting.items.length;
      if (count > 0 && items > this.#most) break;
      count += 1;
    }
    return this.#waiting.splice(0, count);
  }
}

interface Waiting<Item, Result> {
  readonly items: readonly Item[];
  readonly resolve: (results: readonly Result[]) => void;
  readonly reject: (error: unknown) => void;
}
