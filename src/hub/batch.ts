import { framed, type Framing } from './event-stream.ts';

/**
 * The queue of a subscriber: an event and those before it. Subscribers with the same queue share their
 * batches, so that events are combined and framed once for all of them. An event is identified by its Buffer.
 */
export class Batch {
  /** Bytes of all its events, without framing. */
  readonly bytes: number;
  readonly #before: Batch | null;
  readonly #event: Buffer | null;
  /** Batches that continue this one: nearly always a single one, with the same event for all subscribers. */
  #after: Batch | null = null;
  #others: Map<Buffer, Batch> | null = null;
  #plain: Buffer | null = null;
  #chunked: Buffer | null = null;

  private constructor(before: Batch | null, event: Buffer | null) {
    this.#before = before;
    this.#event = event;
    this.bytes = (before?.bytes ?? 0) + (event?.length ?? 0);
  }

  /** An empty batch. Batches that continue it share their common parts as long as it is in use. */
  static empty(): Batch {
    return new Batch(null, null);
  }

  /** This batch followed by one more event. */
  with(event: Buffer): Batch {
    if (this.#after === null) {
      this.#after = new Batch(this, event);
      return this.#after;
    }
    if (this.#after.#event === event) return this.#after;
    this.#others ??= new Map();
    let next = this.#others.get(event);
    if (next === undefined) {
      next = new Batch(this, event);
      this.#others.set(event, next);
    }
    return next;
  }

  /** All its events as one framed piece, which is created once per framing. */
  framed(framing: Framing): Buffer {
    if (framing === 'plain') {
      this.#plain ??= framed(this.#events(), this.bytes, framing);
      return this.#plain;
    }
    this.#chunked ??= framed(this.#events(), this.bytes, framing);
    return this.#chunked;
  }

  #events(): Buffer[] {
    const events = this.#event === null ? [] : [this.#event];
    let before = this.#before;
    while (before !== null) {
      if (before.#event !== null) events.push(before.#event);
      before = before.#before;
    }
    return events.reverse();
  }
}
