import { framed, type Framing } from './event-stream.ts';

/**
 * What waits for a subscriber: an event behind those that came before it. Subscribers whose events
 * are the same share their batches, so that these are combined and framed once for all of them.
 * An event is known by its Buffer.
 */
export class Batch {
  /** Of all its events, without frames. */
  readonly bytes: number;
  readonly #before: Batch | null;
  readonly #event: Buffer | null;
  /** What has been added to it: nearly always one event, to all who have it. */
  #after: Batch | null = null;
  #others: Map<Buffer, Batch> | null = null;
  #plain: Buffer | null = null;
  #chunked: Buffer | null = null;

  private constructor(before: Batch | null, event: Buffer | null) {
    this.#before = before;
    this.#event = event;
    this.bytes = (before?.bytes ?? 0) + (event?.length ?? 0);
  }

  /** A beginning, whose descendants share what they have in common as long as it is in use. */
  static empty(): Batch {
    return new Batch(null, null);
  }

  /** This batch with an event behind it. */
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

  /** All its events in one piece, framed; made once for each framing. */
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
