// An event stream over HTTP/1.1 has its connection to itself. Once its head is written, the connection is left to
// it, and it writes to the socket directly. So one framed Buffer goes to every socket unchanged. If a stream comes
// after an earlier response, uses HTTP/1.0, or is encoded or delayed, it is an ordinary body instead.

import type { Socket } from 'node:net';
import type { ResponseStream, StreamListener } from '../http/exchange.ts';
import { LAST_CHUNK } from '../http/http1-syntax.ts';

/**
 * The stream that a socket carries. Shared functions find it here, so a stream needs no functions of its own.
 */
const STREAM = Symbol('stream on this connection');

interface Carrier {
  [STREAM]?: Http1EventStream;
}

/**
 * The chunked body of the last response of an HTTP/1.1 connection (RFC 9112 §7.1). It has the connection to
 * itself: nothing else reads from it or writes to it.
 */
export class Http1EventStream implements ResponseStream {
  readonly framing = 'chunked';
  readonly #socket: Socket & Carrier;
  readonly #onLeave: (() => void) | null;
  #listener: StreamListener | null = null;
  #isOver = false;
  #isClosed = false;

  /** `onLeave` is called when the connection closes before the end. */
  constructor(socket: Socket, onLeave: (() => void) | null) {
    this.#socket = socket;
    this.#onLeave = onLeave;
    this.#socket[STREAM] = this;
    socket.on('drain', onDrain).on('close', onClose);
  }

  write(framed: Buffer): boolean {
    return this.#isOver || this.#socket.write(framed);
  }

  get bufferedBytes(): number {
    return this.#isClosed ? 0 : this.#socket.writableLength;
  }

  listen(listener: StreamListener): void {
    this.#listener = listener;
    if (this.#isClosed) queueMicrotask(() => listener.closed());
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#socket.write(LAST_CHUNK, 'latin1');
    this.#socket.destroySoon();
  }

  destroy(): void {
    this.#isOver = true;
    this.#socket.destroy();
  }

  drained(): void {
    if (!this.#isOver) this.#listener?.drained();
  }

  closed(): void {
    if (!this.#isOver) this.#onLeave?.();
    this.#isOver = true;
    this.#isClosed = true;
    this.#listener?.closed();
  }
}

function onDrain(this: Carrier): void {
  this[STREAM]?.drained();
}

function onClose(this: Carrier): void {
  this[STREAM]?.closed();
}
