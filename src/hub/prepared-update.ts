import { Budget } from '../kernel/scheduler.ts';
import { eventOf } from './event-stream.ts';
import { parseTopic, type Topic } from './topic.ts';
import type { Update } from './update.ts';

/** An update as it is given out: its topics and its event, each made once for all who get it. */
export class PreparedUpdate {
  readonly update: Update;
  readonly topics: readonly Topic[];
  /** The event is encoded in slices; the budget is that of the encoding. */
  readonly #budget = new Budget(0);
  #encoding: Generator<void, Buffer, void> | null = null;
  #event: Buffer | null = null;

  /** @param topics that have been read before; null to read them */
  constructor(update: Update, base: string, topics: readonly Topic[] | null = null) {
    this.update = update;
    this.topics = topics ?? update.topics.map((text) => parseTopic(text, base));
  }

  /** The event; null when nothing is left of the budget before it is encoded: asked again it goes on. */
  event(budget: Budget): Buffer | null {
    if (this.#event !== null) return this.#event;
    this.#encoding ??= eventOf(this.update, this.#budget);
    this.#budget.left = budget.left;
    const { value } = this.#encoding.next();
    budget.left = this.#budget.left;
    if (value === undefined) return null;
    this.#event = value;
    this.#encoding = null;
    return value;
  }
}
