// A source is paused above a high-water mark and resumed below a low one, for every protocol and in both
// directions. It is not paused whenever a write returns false, because many short pauses cost more than the
// memory that they save.

import type { Writable } from 'node:stream';
import { ignore } from '../kernel/error.ts';
import { bufferPool } from '../http/buffer-pool.ts';
import { NARROW_READ_BYTES, upstreamReads } from './upstream-reads.ts';

/** Thresholds in bytes for pausing and resuming a source. */
interface Marks {
  /** Bytes of one body that may wait to be read. Beyond it, its source is paused. */
  readonly high: number;
  /**
   * Waiting bytes at which a paused source is resumed. The difference between the two is at least the size of
   * one read of a connection, so that each read does not lead to a pause.
   */
  readonly low: number;
}

export const WIDE_MARKS: Marks = { high: 256 * 1024, low: 64 * 1024 };
/**
 * For all bodies while many are read slowly: no second read for a client whose connection accepts no more.
 */
export const NARROW_MARKS: Marks = { high: NARROW_READ_BYTES / 2, low: 0 };

/** The source of a body. */
export interface Source {
  pause(): unknown;
  resume(): unknown;
}

/** The listener for the flow of a body. */
export interface FlowListener {
  /** The source is paused, so its silence is not a fault. */
  held(): void;
  /** Some of the waiting data has been read while the source is paused. */
  taken(): void;
  /** The source is resumed. */
  freed(): void;
}

/**
 * Writes what a source delivers piece by piece, and pauses the source if too much of it waits. The results of
 * `Writable.write` for single pieces are ignored, because pausing and resuming for each of them costs more
 * than it saves.
 */
export class Flow {
  readonly #body: Writable;
  readonly #source: Source;
  readonly #listener: FlowListener;
  #waiting = 0;
  #isHeld = false;
  #isClosed = false;

  constructor(body: Writable, source: Source, listener: FlowListener) {
    this.#body = body;
    this.#source = source;
    this.#listener = listener;
    // Some aborted bodies do not report for each piece that it no longer waits. A body closes once, so that
    // "once" would only cost an object and a function more.
    body.on('close', () => {
      upstreamReads.wait(-this.#waiting);
      this.#isClosed = true;
    });
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** Nothing else may read the chunk afterwards. */
  write(chunk: Buffer): void {
    this.#waiting += chunk.length;
    if (!this.#isClosed) upstreamReads.wait(chunk.length);
    const { length } = chunk;
    bufferPool.pass(chunk, this.#body, () => this.#took(length));
    const limits = marks();
    if (this.#isHeld || this.#waiting <= limits.high) return;
    // The system has accepted all of it and will report that soon. With wide marks, it may be too much.
    if (limits === NARROW_MARKS && this.#body.writableLength === 0) return;
    this.#isHeld = true;
    this.#source.pause();
    this.#listener.held();
  }

  #took(bytes: number): void {
    this.#waiting -= bytes;
    if (!this.#isClosed) upstreamReads.wait(-bytes);
    if (!this.#isHeld) return;
    if (this.#waiting > marks().low) return this.#listener.taken();
    this.#isHeld = false;
    this.#listener.freed();
    this.#source.resume();
  }
}

/** A flow that counts as a body in transit until its end. */
export class BodyFlow extends Flow {
  #end: () => void = upstreamReads.begin();

  /** Nothing more will be written. */
  end(): void {
    this.#end();
    this.#end = ignore;
  }
}

function marks(): Marks {
  return upstreamReads.isNarrow ? NARROW_MARKS : WIDE_MARKS;
}
