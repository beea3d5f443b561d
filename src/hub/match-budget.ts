import type { Subscriber } from './subscriber.ts';

/**
 * Steps that the patterns of one stream may cost for one update (about 3 ms, as one whole test may). What
 * is left of its patterns then does not match this update. Patterns of a usual length cost some hundred steps,
 * and those whose literals the topic lacks cost less than ten.
 */
export const MAX_STREAM_STEPS = 300_000;

/** Tests that cost less are not counted. */
const CHEAP_STEPS = 500;

/**
 * What matching one update has cost each stream. A pattern that several streams have asked for is tried once, and
 * one of them pays for it. So a client with expensive patterns uses up its own share, and delays nobody else.
 */
export class MatchBudget {
  readonly #spent = new Map<Subscriber, number>();

  /** One of the subscribers that has something left; null when none has. */
  payerAmong(subscribers: ReadonlySet<Subscriber>): Subscriber | null {
    for (const subscriber of subscribers) {
      if ((this.#spent.get(subscriber) ?? 0) < MAX_STREAM_STEPS) return subscriber;
    }
    return null;
  }

  pay(payer: Subscriber, steps: number): void {
    if (steps < CHEAP_STEPS) return;
    this.#spent.set(payer, (this.#spent.get(payer) ?? 0) + steps);
  }
}
