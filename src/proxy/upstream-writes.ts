// A large piece of a request body has memory of its own outside of the heap, up to 64 KiB. That memory is released as
// soon as the system has accepted the piece: http/body-memory.ts.

import { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { freeMemory, hasSent } from '../http/body-memory.ts';
import { codeOf } from '../kernel/error.ts';

/** From this size on, the memory of a piece is worth releasing individually. */
const LEAST_RELEASED_BYTES = 8 * 1024;
/** Bytes of pieces from one turn of the event loop that are written to an upstream at once. */
const GATHERED_BYTES = 64 * 1024;

type Done = (error?: Error | null) => void;

/** Writes of request bodies to upstreams. */
class UpstreamWrites {
  /** Pieces that nothing reads after they are written. */
  readonly #owned = new WeakSet<ArrayBufferLike>();
  #releasedBytes = 0;

  /** Bytes of pieces whose memory was released. */
  get releasedBytes(): number {
    return this.#releasedBytes;
  }

  /** Declares that no reader of a body keeps its pieces. Must be called before its reader listens. */
  own(body: Readable): void {
    // Otherwise the first listener makes it flow.
    body.pause();
    body.on('data', this.#own);
  }

  readonly #own = (piece: Buffer): void => {
    if (piece.length >= LEAST_RELEASED_BYTES && ownsMemory(piece)) this.#owned.add(piece.buffer);
  };

  /** Releases the memory of writes to a connection, and joins the pieces of one turn. */
  watch(socket: Socket): void {
    const { _write: write, _writev: writev } = Socket.prototype;
    socket._write = (piece: unknown, encoding, done): void => {
      write.call(
        socket,
        piece,
        encoding,
        this.#isOwned(piece) ? this.#after(socket, done, [piece]) : done,
      );
    };
    socket._writev = (pieces, done): void => {
      const owned = pieces.map(({ chunk }) => chunk as unknown).filter((one) => this.#isOwned(one));
      writev?.call(socket, pieces, owned.length === 0 ? done : this.#after(socket, done, owned));
    };
    gatherWrites(socket);
  }

  #isOwned = (piece: unknown): piece is Buffer =>
    Buffer.isBuffer(piece) && this.#owned.has(piece.buffer);

  #after(socket: Socket, done: Done, pieces: readonly Buffer[]): Done {
    return (error) => {
      // Before `done`, in which the connection may end.
      const isSent = hasSent(socket, error);
      done(error);
      if (!isSent) return;
      for (const piece of pieces) this.release(piece);
    };
  }

  /** Returns the memory of a piece to the system. Nothing may read it any more. */
  release(piece: Buffer): void {
    if (piece.length < LEAST_RELEASED_BYTES || !ownsMemory(piece)) return;
    const { buffer } = piece;
    if (!(buffer instanceof ArrayBuffer)) return;
    this.#owned.delete(buffer);
    this.#releasedBytes += piece.length;
    freeMemory(buffer);
  }
}

/** For all upstreams in this process. */
export const upstreamWrites = new UpstreamWrites();

/** How a write fails if the peer has closed the connection. */
const CLOSED_BY_PEER = new Set(['EPIPE', 'ECONNRESET']);

/**
 * Lets a socket be read to its end when a write has failed because the peer has closed the connection. A server that
 * refuses a request in the middle of its body often sends a response before that (RFC 9112 §9.6), which has arrived
 * and would be lost if the failure destroyed the socket. The write never completes, so that none follows.
 *
 * @param failed called with the error of the write; the end of what can be read is then no regular end
 */
export function readAfterFailedWrites(socket: Socket, failed: (error: Error) => void): void {
  const { _write: write, _writev: writev } = socket;
  // A socket passes the same function for all its writes.
  let known: Done | null = null;
  let guarded: Done = nothing;
  const guard = (done: Done): Done => {
    if (done === known) return guarded;
    known = done;
    guarded = (error) => {
      if (error instanceof Error && CLOSED_BY_PEER.has(codeOf(error) ?? '')) failed(error);
      else done(error);
    };
    return guarded;
  };
  socket._write = (piece: unknown, encoding, done): void =>
    write.call(socket, piece, encoding, guard(done));
  socket._writev = (pieces, done): void => writev?.call(socket, pieces, guard(done));
}

/** Small buffers share one memory block. */
function ownsMemory(piece: Buffer): boolean {
  return piece.length === piece.buffer.byteLength;
}

/**
 * Joins the pieces of one turn to one write. The first one is sent at once. TLS and HTTP/2 deliver further
 * ones of 16 KiB each, and a write costs as much as copying the data.
 */
function gatherWrites(socket: Socket): void {
  const { uncork } = Socket.prototype;
  let hasWritten = false;
  let isHeld = false;
  const flush = (): void => {
    hasWritten = false;
    if (!isHeld) return;
    isHeld = false;
    uncork.call(socket);
  };
  socket.uncork = (): void => {
    const isEnough = socket.writableLength >= GATHERED_BYTES;
    if (!hasWritten) {
      hasWritten = true;
      setImmediate(flush);
    } else if (!isEnough && !isHeld) {
      // Corked data stays until the end of the turn, or until there is enough of it.
      isHeld = true;
      return;
    } else if (isEnough && isHeld) {
      isHeld = false;
      uncork.call(socket);
    }
    uncork.call(socket);
  };
}

function nothing(): void {}
