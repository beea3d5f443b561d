// A connection gets 64 KiB at a time, so that its progress can be seen. A subscriber is slow if much data
// waits in addition to that. A subscriber that has kept up receives an event of any size.

import type { Budget } from '../kernel/scheduler.ts';
import { type Framing, framed } from './event-stream.ts';

/** The destination of the bytes of one event stream: a connection, from the view of the hub. */
export interface EventSink {
  /** The framing that the connection needs. */
  readonly framing: Framing;
  /** Accepts framed bytes, which must not change afterwards. If it returns false, wait for `drained`. */
  write(framed: Buffer): boolean;
  /** Bytes that were accepted but not yet passed to the operating system. */
  readonly bufferedBytes: number;
  /** Sets the listener; called once. */
  listen(listener: SinkListener): void;
  /** Ends the stream cleanly after what was written. */
  end(): void;
  /** Aborts the connection. */
  destroy(): void;
}

export interface SinkListener {
  /** The number of events in it. */
  readonly events: number;
  /** Why it has ended; null while it is open. */
  readonly ended: string | null;
  /** The sink accepts bytes again. */
  drained(): void;
  /** The sink accepts nothing more. Called once, however it ended. */
  closed(): void;
}

/** Most bytes that a connection gets at a time, so that its progress can be seen. */
const PIECE_BYTES = 64 * 1024;
/** Cost of a write in addition to its bytes, in steps. */
const WRITE_STEPS = 500;
/** Bytes that are copied into the operating system per step. */
const BYTES_PER_STEP = 32;

/**
 * The queue between a subscriber and its connection: what waits, how much of it has been sent, and since when
 * nothing has. Events wait in it until they are flushed, and until {@link open} sets a connection.
 */
export class SendBuffer {
  #sink: EventSink | null = null;
  #queue: Batch | null = null;
  /** The framed piece in transfer, and how much of it has been transferred. */
  #piece: Buffer | null = null;
  #offset = 0;
  #handedBytes = 0;
  /** Whether the sink has refused further bytes. */
  #isFull = false;
  #isEnding = false;
  #isDiscarding = false;
  /** Whether the rest of a piece has been discarded. */
  #isTruncated = false;
  /** What had been sent at the last check, and the time of that check. */
  #seenBytes = 0;
  #seenMs = 0;
  #lastWriteMs: number;
  /** Whether it is in the list of streams to be flushed. */
  isListed = false;

  constructor(nowMs: number) {
    this.#lastWriteMs = nowMs;
  }

  /** Whether it has a connection. */
  get isOpen(): boolean {
    return this.#sink !== null;
  }

  /** Monotonic time of the last write. */
  get lastWriteMs(): number {
    return this.#lastWriteMs;
  }

  /** Bytes that wait for the client. */
  get bufferedBytes(): number {
    const rest = this.#piece === null ? 0 : this.#piece.length - this.#offset;
    return (this.#queue?.bytes ?? 0) + rest + (this.#sink?.bufferedBytes ?? 0);
  }

  /**
   * Bytes that wait in addition to the piece in transfer because the connection accepts no more. 0 while it
   * accepts everything, however much has arrived in this turn.
   */
  get waitingBytes(): number {
    return this.#isFull || this.#sink === null ? (this.#queue?.bytes ?? 0) : 0;
  }

  /** Whether nothing waits except what the connection has accepted. */
  get isIdle(): boolean {
    return this.#isEmpty && !this.#isFull;
  }

  get #isEmpty(): boolean {
    return this.#queue === null && this.#piece === null;
  }

  open(sink: EventSink, listener: SinkListener): void {
    this.#sink = sink;
    sink.listen(listener);
  }

  /** Queues an event. `empty` is the batch to begin with if nothing waits. */
  push(event: Buffer, empty: Batch): void {
    if (this.#isDiscarding) return;
    this.#queue = (this.#queue ?? empty).with(event);
  }

  /**
   * Transfers what is queued, as far as the connection accepts it and the budget allows. Returns true if it
   * could continue at once.
   */
  flush(nowMs: number, budget: Budget): boolean {
    const sink = this.#sink;
    if (sink === null) return false;
    while (!this.#isFull) {
      const piece = this.#piece ?? this.#queue?.framed(sink.framing);
      if (piece === undefined) break;
      if (budget.isSpent) return true;
      const bytes = this.#next(piece);
      budget.spend(WRITE_STEPS + Math.floor(bytes.length / BYTES_PER_STEP));
      this.#write(sink, bytes, nowMs);
    }
    if (this.#isEnding && this.#isEmpty) {
      if (this.#isTruncated) sink.destroy();
      else sink.end();
    }
    return false;
  }

  #write(sink: EventSink, bytes: Buffer, nowMs: number): void {
    this.#handedBytes += bytes.length;
    this.#lastWriteMs = nowMs;
    if (sink.write(bytes)) return;
    this.#isFull = true;
    this.#seenBytes = this.#takenBytes;
    this.#seenMs = nowMs;
  }

  drained(): void {
    this.#isFull = false;
  }

  /**
   * The time at which the connection will have accepted nothing for `timeoutMs`; null while it accepts
   * everything.
   */
  stallsAt(timeoutMs: number): number | null {
    return this.#isFull ? this.#seenMs + timeoutMs : null;
  }

  /** Whether the connection, which accepts nothing now, has accepted nothing for `timeoutMs`. */
  isStalled(nowMs: number, timeoutMs: number): boolean {
    if (!this.#isFull || nowMs < this.#seenMs + timeoutMs) return false;
    if (this.#takenBytes <= this.#seenBytes) return true;
    this.#seenBytes = this.#takenBytes;
    this.#seenMs = nowMs;
    return false;
  }

  /**
   * Accepts no more events and discards those that wait. If a piece is in transfer, the end of the stream is an
   * abort, because its rest cannot be left out.
   */
  discardQueued(): void {
    this.#isDiscarding = true;
    this.#isTruncated ||= this.#piece !== null;
    this.discard();
  }

  /** The end of the stream comes after what is queued. */
  end(): void {
    this.#isEnding = true;
  }

  /** Discards what is queued. */
  discard(): void {
    this.#queue = null;
    this.#piece = null;
  }

  /** Aborts the connection. */
  destroy(): void {
    this.discard();
    this.#sink?.destroy();
  }

  get #takenBytes(): number {
    return this.#handedBytes - (this.#sink?.bufferedBytes ?? 0);
  }

  /** A part of a piece, usually all of it. If no piece is in transfer, `piece` is everything that was queued. */
  #next(piece: Buffer): Buffer {
    if (this.#piece === null) {
      this.#queue = null;
      this.#offset = 0;
    }
    if (this.#offset === 0 && piece.length <= PIECE_BYTES) {
      this.#piece = null;
      return piece;
    }
    this.#piece = piece;
    const start = this.#offset;
    this.#offset = Math.min(start + PIECE_BYTES, piece.length);
    if (this.#offset === piece.length) this.#piece = null;
    return piece.subarray(start, this.#offset);
  }
}

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
