// libuv reads a connection up to 32 times before it looks at the next one. That is right for a few large pieces. For
// frames, chunks or records of one byte, it would be 200,000 pieces, and all other clients would wait for them.

import type { Http2Session } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** Pieces of a connection from which on it is not read again before its turn. */
export const MAX_PIECES_OF_TURN = 1_000;
/** Time after which a session that was writing looks whether it still is. */
const WRITE_WAIT_MS = 5;

/** What is used of Node's handle of a connection, which is not documented. */
interface Handle {
  /** What Node's `pause` and `resume` have asked for. */
  readonly reading?: unknown;
  /** Bytes that wait to be written. */
  readonly writeQueueSize?: unknown;
  readStart(): unknown;
  readStop(): unknown;
}

/** Connections that are not read. In each turn of the event loop, one of them is read again. */
const resting = new Set<() => void>();

/**
 * Stops reading a connection until it is its turn. What has been read already is not affected. Does nothing if this
 * version of Node cannot do that.
 */
export function restReading(socket: Socket): void {
  const handle = stopped(socket);
  if (handle === null) return;
  rest(() => {
    // Otherwise, it has been paused meanwhile.
    if (handle.reading === true) handle.readStart();
  });
}

/** Stops reading a connection, and returns what starts it again; null if it has none. */
function stopped(socket: Duplex): Handle | null {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (!isHandle(handle)) return null;
  handle.readStop();
  return handle;
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

function isHandle(value: unknown): value is Handle {
  if (typeof value !== 'object' || value === null) return false;
  return ['readStart', 'readStop'].every((name) => typeof Reflect.get(value, name) === 'function');
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
    const handle = stopped(this.#session.socket);
    if (handle === null) return;
    this.#isResting = true;
    rest(() => this.#resume(handle));
  }

  /** Before Node 26, a session must not read while it writes. */
  #resume(handle: Handle): void {
    if (this.#session.destroyed) return;
    if (handle.writeQueueSize !== 0) {
      setTimeout(() => this.#resume(handle), WRITE_WAIT_MS).unref();
      return;
    }
    this.#isResting = false;
    this.#pieces = 0;
    handle.readStart();
  }
}
