// A connection is handed 64 KiB at a time, so that its progress can be seen. A subscriber is slow
// when much waits behind what it is being handed; an event of any size reaches a subscriber that
// has kept up.

import type { Budget } from '../kernel/scheduler.ts';
import type { Batch } from './batch.ts';
import type { Framing } from './event-stream.ts';

/** Where the bytes of one event stream go: a connection, as the hub sees it. */
export interface EventSink {
  /** How what is written is to be framed. */
  readonly framing: Framing;
  /** Takes bytes framed so, which do not change any more. False: wait for `drained`. */
  write(framed: Buffer): boolean;
  /** Bytes accepted but not yet taken by the operating system. */
  readonly bufferedBytes: number;
  /** Names the one who is told; called once. */
  listen(listener: SinkListener): void;
  /** Ends the stream cleanly after what was written. */
  end(): void;
  /** Breaks the connection off. */
  destroy(): void;
}

export interface SinkListener {
  /** Events that it has been given. */
  readonly events: number;
  /** What the sink had refused to take more of is gone. */
  drained(): void;
  /** Nothing more is taken: once, however it ended. */
  closed(): void;
}

/** The most that a connection is handed at a time, so that its progress can be seen. */
const PIECE_BYTES = 64 * 1024;
/** What a write costs beside its bytes, in steps. */
const WRITE_STEPS = 500;
/** Bytes that a step copies into the operating system. */
const BYTES_PER_STEP = 32;

/**
 * The way from a subscriber to its connection: what waits, how much of it has been taken, and since
 * when nothing has. Events wait in it until they are flushed, and until {@link open} gives it a
 * connection.
 */
export class SendBuffer {
  #sink: EventSink | null = null;
  #queue: Batch | null = null;
  /** What is being handed over, framed; and how much of it has been. */
  #piece: Buffer | null = null;
  #offset = 0;
  #handedBytes = 0;
  /** The sink has refused to take more. */
  #isFull = false;
  #isEnding = false;
  #isDiscarding = false;
  /** What had been taken when that was looked at, and when. */
  #seenBytes = 0;
  #seenMs = 0;
  #lastWriteMs: number;
  /** Whether it is on the list of those that are to be flushed. */
  isListed = false;

  constructor(nowMs: number) {
    this.#lastWriteMs = nowMs;
  }

  /** Monotonic time of the last write. */
  get lastWriteMs(): number {
    return this.#lastWriteMs;
  }

  /** Bytes that the client has not taken. */
  get bufferedBytes(): number {
    const rest = this.#piece === null ? 0 : this.#piece.length - this.#offset;
    return (this.#queue?.bytes ?? 0) + rest + (this.#sink?.bufferedBytes ?? 0);
  }

  /**
   * Bytes that wait behind what the connection is being handed, because it takes no more: none while
   * it takes everything, however much has come in this turn.
   */
  get waitingBytes(): number {
    return this.#isFull || this.#sink === null ? (this.#queue?.bytes ?? 0) : 0;
  }

  /** Whether nothing waits any more but what the connection has accepted. */
  get isIdle(): boolean {
    return this.#queue === null && this.#piece === null && !this.#isFull;
  }

  open(sink: EventSink, listener: SinkListener): void {
    this.#sink = sink;
    sink.listen(listener);
  }

  /** Queues an event. `empty` is the batch to begin with when nothing waits. */
  push(event: Buffer, empty: Batch): void {
    if (this.#isDiscarding) return;
    this.#queue = (this.#queue ?? empty).with(event);
  }

  /**
   * Hands over what is queued, as far as the connection takes it and the budget goes. True when it
   * could go on at once.
   */
  flush(nowMs: number, budget: Budget): boolean {
    const sink = this.#sink;
    if (sink === null) return false;
    for (;;) {
      if (this.#piece === null && this.#queue === null && this.#isEnding) sink.end();
      if (this.#isFull) return false;
      if (this.#piece === null) {
        if (this.#queue === null) return false;
        this.#piece = this.#queue.framed(sink.framing);
        this.#queue = null;
        this.#offset = 0;
      }
      if (budget.isSpent) return true;
      const bytes = this.#next(this.#piece);
      budget.spend(WRITE_STEPS + Math.floor(bytes.length / BYTES_PER_STEP));
      this.#handedBytes += bytes.length;
      this.#lastWriteMs = nowMs;
      if (sink.write(bytes)) continue;
      this.#isFull = true;
      this.#seenBytes = this.#takenBytes;
      this.#seenMs = nowMs;
    }
  }

  drained(): void {
    this.#isFull = false;
  }

  /** When the connection will have taken nothing for `timeoutMs`; null while it takes everything. */
  stallsAt(timeoutMs: number): number | null {
    return this.#isFull ? this.#seenMs + timeoutMs : null;
  }

  /** Whether the connection, which wants nothing more now, has taken nothing for `timeoutMs`. */
  isStalled(nowMs: number, timeoutMs: number): boolean {
    if (!this.#isFull || nowMs < this.#seenMs + timeoutMs) return false;
    if (this.#takenBytes <= this.#seenBytes) return true;
    this.#seenBytes = this.#takenBytes;
    this.#seenMs = nowMs;
    return false;
  }

  /** Takes no more events and forgets those that wait: only what has been begun goes on. */
  discardQueued(): void {
    this.#isDiscarding = true;
    this.#queue = null;
  }

  /** The end of the stream follows what is queued. */
  end(): void {
    this.#isEnding = true;
  }

  /** Forgets what is queued: nobody takes it. */
  discard(): void {
    this.#queue = null;
    this.#piece = null;
  }

  /** Breaks the connection off. */
  destroy(): void {
    this.discard();
    this.#sink?.destroy();
  }

  get #takenBytes(): number {
    return this.#handedBytes - (this.#sink?.bufferedBytes ?? 0);
  }

  /** A part of the piece, most often all of it. */
  #next(piece: Buffer): Buffer {
    if (this.#offset === 0 && piece.length <= PIECE_BYTES) {
      this.#piece = null;
      return piece;
    }
    const start = this.#offset;
    this.#offset = Math.min(start + PIECE_BYTES, piece.length);
    if (this.#offset === piece.length) this.#piece = null;
    return piece.subarray(start, this.#offset);
  }
}
