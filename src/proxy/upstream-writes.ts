// Node makes a buffer outside the heap for each piece of a request's body, up to 64 KiB. Left to the
// collector, that memory is never warm, its pages come and go, and V8 marks the whole heap for it: more
// than half of an upload's processor time. So the memory of a piece is given back as soon as the system
// has taken the piece.

import { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { MessageChannel } from 'node:worker_threads';

/** From here on the memory of a piece is worth giving back by itself. */
const LEAST_RELEASED_BYTES = 8 * 1024;
/** Bytes of pieces that come in one turn of the event loop and are written to an upstream at once. */
const GATHERED_BYTES = 64 * 1024;
/** Delivers nothing: the memory that is transferred to a closed port is free at once. */
const { port1: closedPort } = new MessageChannel();
closedPort.close();

type Done = (error?: Error | null) => void;

/** What is written to upstreams, of the bodies of requests. */
class UpstreamWrites {
  /** Pieces that nobody reads once they are written. */
  readonly #owned = new WeakSet<ArrayBufferLike>();
  #releasedBytes = 0;

  /** Bytes of pieces whose memory was given back. */
  get releasedBytes(): number {
    return this.#releasedBytes;
  }

  /** Whoever reads a body keeps none of its pieces: to be called before its reader listens. */
  own(body: Readable): void {
    // Else the first listener makes it flow.
    body.pause();
    body.on('data', this.#own);
  }

  readonly #own = (piece: Buffer): void => {
    if (piece.length >= LEAST_RELEASED_BYTES && ownsMemory(piece)) this.#owned.add(piece.buffer);
  };

  /** Gives back what is written to a connection, and gathers the pieces of one turn. */
  watch(socket: Socket): void {
    const { _write: write, _writev: writev } = Socket.prototype;
    socket._write = (piece: unknown, encoding, done): void => {
      write.call(socket, piece, encoding, this.#isOwned(piece) ? this.#after(done, [piece]) : done);
    };
    socket._writev = (pieces, done): void => {
      const owned = pieces.map(({ chunk }) => chunk as unknown).filter((one) => this.#isOwned(one));
      writev?.call(socket, pieces, owned.length === 0 ? done : this.#after(done, owned));
    };
    gatherWrites(socket);
  }

  #isOwned = (piece: unknown): piece is Buffer =>
    Buffer.isBuffer(piece) && this.#owned.has(piece.buffer);

  #after(done: Done, pieces: readonly Buffer[]): Done {
    return (error) => {
      done(error);
      // After a failure it is not known whether the system still reads from it.
      if (error instanceof Error) return;
      for (const piece of pieces) this.release(piece);
    };
  }

  /** Gives the memory of a piece back to the system, which nobody may read any more. */
  release(piece: Buffer): void {
    if (piece.length < LEAST_RELEASED_BYTES || !ownsMemory(piece)) return;
    const { buffer } = piece;
    if (!(buffer instanceof ArrayBuffer)) return;
    this.#owned.delete(buffer);
    this.#releasedBytes += piece.length;
    closedPort.postMessage(null, [buffer]);
  }
}

/** Of all upstreams in this process. */
export const upstreamWrites = new UpstreamWrites();

/** Small buffers lie together in one memory. */
function ownsMemory(piece: Buffer): boolean {
  return piece.length === piece.buffer.byteLength;
}

/**
 * Makes one write of the pieces that come in one turn. The first one goes out at once; TLS and HTTP/2 bring
 * some more of 16 KiB each, and a write costs as much as what it moves.
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
      // What has been corked stays so until the end of the turn, or until there is enough.
      isHeld = true;
      return;
    } else if (isEnough && isHeld) {
      isHeld = false;
      uncork.call(socket);
    }
    uncork.call(socket);
  };
}
