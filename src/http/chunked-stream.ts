import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { ResponseStream, StreamListener } from './exchange.ts';

/** Of which stream a socket is the carrier: found so, no stream needs functions of its own. */
const STREAM = Symbol('stream on this socket');

interface Carrier {
  [STREAM]?: ChunkedStream;
}

/** The chunked body of an HTTP/1.1 response, written straight to its socket (RFC 9112 §7.1). */
export class ChunkedStream implements ResponseStream {
  readonly framing = 'chunked';
  readonly #response: ServerResponse & Carrier;
  readonly #socket: Socket & Carrier;
  #listener: StreamListener | null = null;
  #isOver = false;

  /** The head of `response` has been written, its socket is its own, and the body goes in chunks. */
  constructor(response: ServerResponse, socket: Socket) {
    this.#response = response;
    this.#socket = socket;
    this.#response[STREAM] = this;
    this.#socket[STREAM] = this;
  }

  write(framed: Buffer): boolean {
    return this.#isOver || this.#socket.write(framed);
  }

  get bufferedBytes(): number {
    return this.#isOver ? 0 : this.#socket.writableLength;
  }

  listen(listener: StreamListener): void {
    this.#listener = listener;
    this.#socket.on('drain', onDrain);
    this.#response.once('close', onClose);
    if (this.#response.destroyed) queueMicrotask(() => this.closed());
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#response.end();
  }

  destroy(): void {
    this.#isOver = true;
    this.#response.destroy();
  }

  drained(): void {
    if (!this.#isOver) this.#listener?.drained();
  }

  closed(): void {
    this.#isOver = true;
    const listener = this.#listener;
    this.#listener = null;
    if (this.#socket[STREAM] === this) delete this.#socket[STREAM];
    this.#socket.off('drain', onDrain);
    listener?.closed();
  }
}

function onDrain(this: Carrier): void {
  this[STREAM]?.drained();
}

function onClose(this: Carrier): void {
  this[STREAM]?.closed();
}
