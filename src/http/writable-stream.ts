import { ServerResponse } from 'node:http';
import { Duplex, type Writable } from 'node:stream';
import type { Exchange, ResponseStream, StreamListener } from './exchange.ts';

/** A {@link ResponseStream} over any body: one that is encoded, held back, or discarded. */
export class WritableStream implements ResponseStream {
  readonly framing = 'plain';
  readonly #body: Writable;
  readonly #exchange: Pick<Exchange, 'signal' | 'abort'>;
  #closed = false;

  /** `exchange` tells when the client leaves, of which such a body need not hear. */
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

/**
 * Whether a body has let go of a chunk when it calls back: what goes straight to the client, not
 * through anything that encodes, counts or keeps it.
 */
export function givesBack(body: Writable): boolean {
  if (body instanceof ServerResponse) return body.write === ServerResponse.prototype.write;
  return 'sentHeaders' in body && body.write === Duplex.prototype.write;
}

/** Tells of each piece that is written to a body. Only for one whose length is not known before. */
export function countWrites(body: Writable, add: (bytes: number) => void): void {
  const inner = { write: body.write.bind(body), end: body.end.bind(body) };
  const count = (chunk: unknown): void => {
    if (typeof chunk === 'string') add(Buffer.byteLength(chunk));
    else if (chunk instanceof Uint8Array) add(chunk.length);
  };
  // Both have overloads that a function of rest parameters cannot be given.
  const write = (chunk: unknown, ...rest: [BufferEncoding]): boolean => {
    count(chunk);
    return inner.write(chunk, ...rest);
  };
  const end = (chunk: unknown, ...rest: [BufferEncoding]): Writable => {
    count(chunk);
    inner.end(chunk, ...rest);
    return body;
  };
  Object.assign(body, { write, end });
}
