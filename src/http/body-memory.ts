import { ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Duplex, Writable } from 'node:stream';
import { MessageChannel } from 'node:worker_threads';
import { ignore } from '../kernel/error.ts';

/** Marks a body that calls back for each piece when nothing reads it any more, as sockets do. */
export const CALLS_BACK_WHEN_SENT = Symbol('calls back when sent');

/** What the functions of {@link countWrites} call. */
const counted = new WeakMap<object, unknown>();

/**
 * Whether a body has released a chunk when it calls back. This is true for a body that goes straight to its
 * reader, without encoding or storing.
 */
export function givesBack(body: Writable): boolean {
  const write = counted.get(body.write) ?? body.write;
  if (CALLS_BACK_WHEN_SENT in body) return write === Writable.prototype.write;
  if (body instanceof ServerResponse) return write === ServerResponse.prototype.write;
  return (body instanceof Socket || 'sentHeaders' in body) && write === Duplex.prototype.write;
}

/**
 * Whether the system no longer reads from what was written, when the callback of a write says so. That is
 * unknown after a failure. For a destroyed HTTP/2 stream, some versions of Node (20, 26) report success
 * while a part of the piece still waits in the connection.
 */
export function hasSent(body: Writable, error: Error | null | undefined): boolean {
  return !(error instanceof Error) && !body.destroyed;
}

/**
 * Calls `add` for each piece that is written to a body. Only needed if the length is not known in advance.
 */
export function countWrites(body: Writable, add: (bytes: number) => void): void {
  const { write: plainWrite } = body;
  const inner = { write: plainWrite.bind(body), end: body.end.bind(body) };
  const count = (chunk: unknown): void => {
    if (typeof chunk === 'string') add(Buffer.byteLength(chunk));
    else if (chunk instanceof Uint8Array) add(chunk.length);
  };
  // Both functions have overloads, which a function with rest parameters cannot be assigned to.
  const write = (chunk: unknown, ...rest: [BufferEncoding]): boolean => {
    count(chunk);
    return inner.write(chunk, ...rest);
  };
  const end = (chunk: unknown, ...rest: [BufferEncoding]): Writable => {
    count(chunk);
    inner.end(chunk, ...rest);
    return body;
  };
  counted.set(write, plainWrite);
  Object.assign(body, { write, end });
}

// Node allocates buffers outside of V8's heap for what it reads. If the garbage collector has to release this memory,
// it is never in the CPU cache, its pages are mapped again and again, and V8 marks the whole heap each time: more than
// half of the CPU time of an upload. So what has been passed on is released at once.

/** It delivers nothing: memory that is transferred to a closed port is freed at once. */
const { port1: closedPort } = new MessageChannel();
closedPort.close();

/** Returns memory to the system. Every view of it has a length of zero afterwards. */
export function freeMemory(memory: ArrayBuffer): void {
  closedPort.postMessage(null, [memory]);
}

/** Tasks for the end of this turn of the event loop, with one callback for all bodies. */
let due: (() => void)[] = [];

export function afterTurn(task: () => void): void {
  if (due.push(task) === 1) setImmediate(runDue);
}

function runDue(): void {
  const tasks = due;
  due = [];
  for (const task of tasks) task();
  sessionReads.free();
}

/** Bytes of the head of an HTTP/2 frame (RFC 9113 §4.1). */
const FRAME_HEAD_BYTES = 9;
/** Less memory is not worth freeing individually. */
const LEAST_FREED_BYTES = 8 * 1024;
/** Pieces of one memory that are remembered. With more, the garbage collector frees it. */
const MAX_PIECES = 64;

/** The memory of what HTTP/2 sessions have read. */
class SessionReads {
  /** The ends of the pieces that have been copied, by their beginnings. */
  readonly #pieces = new WeakMap<ArrayBuffer, Map<number, number>>();
  /** Memory with pieces of this turn. */
  readonly #touched = new Set<ArrayBuffer>();
  #freedBytes = 0;

  /** Bytes that were freed here and not by the garbage collector. */
  get freedBytes(): number {
    return this.#freedBytes;
  }

  /**
   * Declares that a piece of a body is read, and copied by the end of the turn.
   *
   * @returns whether its memory is worth that
   */
  copied({ buffer, byteOffset, length }: Buffer): boolean {
    if (!(buffer instanceof ArrayBuffer) || buffer.byteLength < LEAST_FREED_BYTES) return false;
    if (length === 0) return false;
    if (this.#touched.size === 0) afterTurn(ignore);
    let pieces = this.#pieces.get(buffer);
    if (pieces === undefined) {
      pieces = new Map();
      this.#pieces.set(buffer, pieces);
    }
    if (pieces.size < MAX_PIECES) pieces.set(byteOffset, byteOffset + length);
    this.#touched.add(buffer);
    return true;
  }

  /** Frees what has been copied as a whole. The session has parsed all of it, because its pieces were read. */
  free(): void {
    for (const memory of this.#touched) {
      if (!this.#isCopied(memory)) continue;
      this.#freedBytes += memory.byteLength;
      freeMemory(memory);
    }
    this.#touched.clear();
  }

  /**
   * Between two pieces there is exactly the head of a frame. Anything else could be a piece that another
   * reader has not copied yet.
   */
  #isCopied(memory: ArrayBuffer): boolean {
    const pieces = this.#pieces.get(memory);
    let end: number | undefined = 0;
    while (end !== undefined && end < memory.byteLength) {
      end = pieces?.get(end) ?? pieces?.get(end + FRAME_HEAD_BYTES);
    }
    return end === memory.byteLength;
  }
}

/** Of all HTTP/2 sessions in this process. */
export const sessionReads = new SessionReads();
