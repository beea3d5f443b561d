import { Socket } from 'node:net';
import { codeOf, ignore } from '../kernel/error.ts';

/** Bytes of pieces from one turn of the event loop that are written to an upstream at once. */
const GATHERED_BYTES = 64 * 1024;

type Done = (error?: Error | null) => void;

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
  let guarded: Done = ignore;
  const guard = (done: Done): Done => {
    if (done !== known) {
      known = done;
      guarded = unlessClosedByPeer(done, failed);
    }
    return guarded;
  };
  socket._write = (piece: unknown, encoding, done): void =>
    write.call(socket, piece, encoding, guard(done));
  socket._writev = (pieces, done): void => writev?.call(socket, pieces, guard(done));
}

function unlessClosedByPeer(done: Done, failed: (error: Error) => void): Done {
  return (error) => {
    if (error instanceof Error && CLOSED_BY_PEER.has(codeOf(error) ?? '')) failed(error);
    else done(error);
  };
}

/**
 * Joins the pieces of one turn to one write. The first one is sent at once. TLS and HTTP/2 deliver further
 * ones of 16 KiB each, and a write costs as much as copying the data.
 */
export function gatherWrites(socket: Socket): void {
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
