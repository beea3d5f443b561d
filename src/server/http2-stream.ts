import type { ServerHttp2Stream } from 'node:http2';
import { breakOff } from '../http/body-end.ts';
import type { ResponseStream, StreamListener } from '../http/exchange.ts';

/** The response of a stream. Shared functions find it here, so a response needs no functions of its own. */
const STREAM = Symbol('response of this stream');

interface Carrier {
  [STREAM]?: Http2Stream;
}

/** The body of a response in an HTTP/2 stream, without trailer fields. */
export class Http2Stream implements ResponseStream {
  readonly framing = 'plain';
  readonly #stream: ServerHttp2Stream & Carrier;
  #listener: StreamListener | null = null;
  #isOver = false;
  #isClosed = false;

  /** The head has already been sent, or the stream is closed. */
  constructor(stream: ServerHttp2Stream) {
    this.#stream = stream;
    this.#stream[STREAM] = this;
    this.#isClosed = stream.destroyed;
    stream.on('drain', onDrain);
    stream.once('close', onClose);
  }

  write(framed: Buffer): boolean {
    return this.#isOver || this.#stream.destroyed || this.#stream.write(framed);
  }

  get bufferedBytes(): number {
    return this.#isClosed ? 0 : this.#stream.writableLength;
  }

  listen(listener: StreamListener): void {
    this.#listener = listener;
    if (this.#isClosed) queueMicrotask(() => listener.closed());
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stream.end();
  }

  destroy(): void {
    this.#isOver = true;
    breakOff(this.#stream);
  }

  drained(): void {
    if (!this.#isOver) this.#listener?.drained();
  }

  closed(): void {
    if (this.#isClosed) return;
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
