// A source is paused above a high-water mark and resumed below a low one, for every protocol and in
// both directions. It is not paused whenever a write returns false: the HTTP client joins
// everything that has come in meanwhile when it resumes, and many short pauses would make that
// quadratic.

import type { Writable } from 'node:stream';
import { NARROW_READ_BYTES, upstreamReads } from './upstream-reads.ts';
import { upstreamWrites } from './upstream-writes.ts';

/** Bytes between which a source is held, and goes on. */
interface Marks {
  /** Bytes that may wait to be taken from one body; beyond, its source is held. */
  readonly high: number;
  /**
   * Waiting bytes at which a held source goes on. What lies between the two must be no less than one read
   * of a connection brings: the HTTP client joins all that has come meanwhile when it goes on, and would
   * join more and more of it.
   */
  readonly low: number;
}

export const WIDE_MARKS: Marks = { high: 256 * 1024, low: 64 * 1024 };
/** For all bodies while many are taken slowly: no second read for a client whose connection takes no more. */
export const NARROW_MARKS: Marks = { high: NARROW_READ_BYTES / 2, low: 0 };

/** What a body is read from. */
export interface Source {
  pause(): unknown;
  resume(): unknown;
}

/** Who is told how a body flows. */
export interface FlowListener {
  /** The source is held: its silence is not fault of its own. */
  held(): void;
  /** Something of what waits has been taken while the source is held. */
  taken(): void;
  /** The source goes on. */
  freed(): void;
}

/**
 * Writes a body piece by piece, and holds its source where too much of it waits. What `Writable.write`
 * says of single pieces is not asked: a source that is held and let go with each of them costs more than
 * what it gives.
 */
export class BodyFlow {
  readonly #body: Writable;
  readonly #source: Source;
  readonly #listener: FlowListener;
  #waiting = 0;
  #isHeld = false;
  #isClosed = false;
  #end: () => void = upstreamReads.begin();

  constructor(body: Writable, source: Source, listener: FlowListener) {
    this.#body = body;
    this.#source = source;
    this.#listener = listener;
    // Not every body that is broken off says of each piece that it waits no more.
    body.once('close', () => {
      upstreamReads.wait(-this.#waiting);
      this.#isClosed = true;
    });
  }

  /** Nothing more will be written. */
  end(): void {
    this.#end();
    this.#end = nothing;
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  /** @param whole what the chunk is the last part of, and whose memory nobody reads once it is taken */
  write(chunk: Buffer, whole: Buffer | null = null): void {
    this.#waiting += chunk.length;
    if (!this.#isClosed) upstreamReads.wait(chunk.length);
    upstreamReads.pass(chunk, this.#body, (error) => {
      this.#took(chunk.length);
      // After a failure it is not known whether the system still reads from it.
      if (whole !== null && !(error instanceof Error)) upstreamWrites.release(whole);
    });
    const limits = marks();
    if (this.#isHeld || this.#waiting <= limits.high) return;
    // The system has taken all of it, and says so in a moment. Above wide marks that may be too much.
    if (limits === NARROW_MARKS && this.#body.writableLength === 0) return;
    this.#isHeld = true;
    this.#source.pause();
    this.#listener.held();
  }

  #took(bytes: number): void {
    this.#waiting -= bytes;
    if (!this.#isClosed) upstreamReads.wait(-bytes);
    if (!this.#isHeld) return;
    if (this.#waiting > marks().low) {
      this.#listener.taken();
      return;
    }
    this.#isHeld = false;
    this.#listener.freed();
    this.#source.resume();
  }
}

function nothing(): void {}

function marks(): Marks {
  return upstreamReads.isNarrow ? NARROW_MARKS : WIDE_MARKS;
}
