// A body may arrive in pieces of a few bytes: DATA frames, chunks or records. Each would cost hundreds of times its size
// on its way, so the pieces of one turn of the event loop are passed on together. And libuv reads a connection up to 32
// times before it looks at the next one, which would be 200,000 such pieces while all other clients wait. So a connection
// with many pieces in a read is not read again before its turn.

import type { Http2Session } from 'node:http2';
import type { Socket } from 'node:net';
import { type ReadingHandle, stopReading } from '../kernel/node-internals.ts';
import { afterTurn, sessionReads } from './body-memory.ts';
import { bufferPool, LEAST_POOLED_BYTES } from './buffer-pool.ts';

/** Bytes of small pieces that are passed on together. */
const GATHERED_BYTES = 16 * 1024;
/** Pieces of a connection from which on it is not read again before its turn. */
export const MAX_PIECES_OF_TURN = 1_000;
/** Time after which a session that was writing looks whether it still is. It doubles each time, up to a limit. */
const FIRST_LOOK_MS = 5;
const MAX_LOOK_MS = 640;

/**
 * Passes on the pieces of a body that arrive in one turn of the event loop: the first at once, and further small ones
 * together. A piece of a few bytes would cost hundreds of times its size on its way.
 */
export class PiecesOfTurn {
  readonly #isView: boolean;
  readonly #pass: (bytes: Buffer) => void;
  /** A piece has been passed on in this turn. */
  #isGathering = false;
  #gathered: Buffer[] = [];
  #bytes = 0;

  /** @param isView the pieces are views of what an HTTP/2 session has read, and are copied */
  constructor(isView: boolean, pass: (bytes: Buffer) => void) {
    this.#isView = isView;
    this.#pass = pass;
  }

  add(piece: Buffer): void {
    if (this.#isView) sessionReads.copied(piece);
    if (!this.#isGathering) {
      this.#isGathering = true;
      // Not `process.nextTick`: Node runs its callbacks between the chunks of one packet.
      afterTurn(this.#onTurn);
      this.#pass(this.#isView ? bufferPool.copy(piece, 0, piece.length) : piece);
      return;
    }
    if (piece.length >= LEAST_POOLED_BYTES && !this.#isView) {
      this.flush();
      this.#pass(piece);
      return;
    }
    this.#gathered.push(piece);
    this.#bytes += piece.length;
    if (this.#bytes >= GATHERED_BYTES) this.flush();
  }

  /** Passes on what is left. */
  flush(): void {
    if (this.#gathered.length === 0) return;
    const bytes = bufferPool.join(this.#gathered, this.#bytes);
    this.#gathered = [];
    this.#bytes = 0;
    this.#pass(bytes);
  }

  readonly #onTurn = (): void => {
    this.#isGathering = false;
    this.flush();
  };
}

/** Connections that are not read. In each turn of the event loop, one of them is read again. */
const resting = new Set<() => void>();

/**
 * Stops reading a connection until it is its turn. What has been read already is not affected. Does nothing if this
 * version of Node cannot do that.
 */
export function restReading(socket: Socket): void {
  const handle = stopReading(socket);
  if (handle === null) return;
  rest(() => {
    // Otherwise, it has been paused meanwhile.
    if (handle.reading === true) handle.readStart();
  });
}

function rest(resume: () => void): void {
  resting.add(resume);
  if (resting.size === 1) setImmediate(nextTurn);
}

function nextTurn(): void {
  const [resume] = resting;
  if (resume === undefined) return;
  resting.delete(resume);
  resume();
  if (resting.size > 0) setImmediate(nextTurn);
}

/** Counts the pieces that an HTTP/2 session reads. */
export class SessionPieces {
  readonly #session: Http2Session;
  #pieces = 0;
  #isResting = false;

  constructor(session: Http2Session) {
    this.#session = session;
  }

  add(): void {
    this.#pieces += 1;
    if (this.#pieces < MAX_PIECES_OF_TURN || this.#isResting || this.#session.destroyed) return;
    const handle = stopReading(this.#session.socket);
    if (handle === null) return;
    this.#isResting = true;
    rest(() => this.#resume(handle, FIRST_LOOK_MS));
  }

  /** Before Node 26, a session must not read while it writes. */
  #resume(handle: ReadingHandle, nextLookMs: number): void {
    if (this.#session.destroyed) return;
    if (handle.writeQueueSize !== 0) {
      const next = Math.min(2 * nextLookMs, MAX_LOOK_MS);
      setTimeout(() => this.#resume(handle, next), nextLookMs).unref();
      return;
    }
    this.#isResting = false;
    this.#pieces = 0;
    handle.readStart();
  }
}
