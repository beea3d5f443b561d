import { constants, type ServerHttp2Stream } from 'node:http2';
import type { ResponseStream, StreamListener } from '../http/exchange.ts';
import { HubgateError } from '../kernel/error.ts';

/** Whose stream it is: found so, no stream needs functions of its own. */
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

  /** The head has been sent, or the stream is gone. */
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

/**
 * RFC 9113 §8.1: INTERNAL_ERROR tells the client that the response is not complete. Closed with that
 * code, Node would end the body in good order first.
 */
export function breakOff(stream: ServerHttp2Stream): void {
  if (stream.destroyed || stream.closed) return;
  stream.destroy(new HubgateError('response-broken-off', 'The response was broken off'));
}

/**
 * RFC 9113 §8.1: after the answer the rest of the request is not wanted. A turn later than the head was
 * given: some versions of Node (22.23, 26) would send what closes the stream instead of a head without a body.
 */
export function closeAnswered(stream: ServerHttp2Stream): void {
  setImmediate(() => {
    if (!stream.destroyed) stream.close(constants.NGHTTP2_NO_ERROR);
  });
}
