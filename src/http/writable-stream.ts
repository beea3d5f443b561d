import { ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Duplex, Writable } from 'node:stream';
import { MessageChannel } from 'node:worker_threads';
import type { Exchange, ResponseStream, StreamListener } from './exchange.ts';

/** A {@link ResponseStream} over any body: an encoded, a delayed or a discarded one. */
export class WritableStream implements ResponseStream {
  readonly framing = 'plain';
  readonly #body: Writable;
  readonly #exchange: Pick<Exchange, 'signal' | 'abort'>;
  #closed = false;

  /** `exchange` reports when the client leaves, which such a body may not notice. */
  constructor(body: Writable, exchange: Pick<Exchange, 'signal' | 'abort'>) {
    this.#body = body;
    this.#exchange = exchange;
  }

  write(framed: Buffer): boolean {
    return this.#closed || this.#body.writableEnded || this.#body.write(framed);
  }

  get bufferedBytes(): number {
    return this.#body.writableLength;
  }

  listen(listener: StreamListener): void {
    const body = this.#body;
    const { signal } = this.#exchange;
    const onClose = (): void => {
      if (this.#closed) return;
      this.#closed = true;
      signal.removeEventListener('abort', onClose);
      listener.closed();
    };
    body.on('drain', () => {
      if (!this.#closed) listener.drained();
    });
    body.once('close', onClose);
    signal.addEventListener('abort', onClose);
    if (signal.aborted || body.closed || body.destroyed) queueMicrotask(onClose);
  }

  end(): void {
    if (!this.#body.writableEnded) this.#body.end();
  }

  destroy(): void {
    if (!this.#closed) this.#exchange.abort();
  }
}

/** Marks a body that calls back for each piece when the system has taken it, as sockets do. */
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
