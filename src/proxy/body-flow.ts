import type { Writable } from 'node:stream';
import { upstreamReads } from './upstream-reads.ts';

/** Bytes that may wait to be taken from one body; beyond, its source is held. */
export const HIGH_WATER_BYTES = 256 * 1024;
/**
 * Waiting bytes at which a held source goes on. What lies between the two must be more than one read of a
 * connection brings: the HTTP client joins all that has come meanwhile when it goes on, and would join
 * more and more of it.
 */
export const LOW_WATER_BYTES = 64 * 1024;

/** What a body is read from. */
export interface Source {
  pause(): unknown;
  resume(): unknown;
}

/** Who is told how a body flows. */
export interface FlowListener {
  /** The source is held: its silence is no fault of its own. */
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

  constructor(body: Writable, source: Source, listener: FlowListener) {
    this.#body = body;
    this.#source = source;
    this.#listener = listener;
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  write(chunk: Buffer): void {
    this.#waiting += chunk.length;
    upstreamReads.pass(chunk, this.#body, () => this.#took(chunk.length));
    if (this.#isHeld || this.#waiting <= HIGH_WATER_BYTES) return;
    this.#isHeld = true;
    this.#source.pause();
    this.#listener.held();
  }

  #took(bytes: number): void {
    this.#waiting -= bytes;
    if (!this.#isHeld) return;
    if (this.#waiting > LOW_WATER_BYTES) {
      this.#listener.taken();
      return;
    }
    this.#isHeld = false;
    this.#listener.freed();
    this.#source.resume();
  }
}
