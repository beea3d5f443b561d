// `request_buffers` and `response_buffers`: a part of a body is read before it is passed on. An upstream with few
// workers is then not occupied by a slow client, and one that needs a length gets it.

import { once } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { writeTo } from '../http/body-end.ts';
import { stopWith } from '../http/deferred-body.ts';
import { RelayedBody } from '../http/client-body.ts';
import { HttpError } from '../http/errors.ts';
import type { LeasedBody } from '../http/exchange.ts';

/** Bytes that all bodies of one proxy may fill at a time. Further bodies are passed on at once. */
const MAX_SPACE = 64 * 1024 * 1024;

/** The memory for the buffers of one proxy. */
export class BufferSpace {
  #left = MAX_SPACE;

  /** Reserves bytes; null if there are not so many. The returned function gives them back. */
  take(bytes: number): (() => void) | null {
    if (bytes > this.#left) return null;
    this.#left -= bytes;
    let isTaken = true;
    return () => {
      if (isTaken) this.#left += bytes;
      isTaken = false;
    };
  }

  /**
   * Reads the beginning of a request body; null if there is no body, or no room for it.
   *
   * @param limit bytes to read at most, which are reserved until the body is released
   * @throws as {@link bufferBody}
   */
  async buffer(
    bodyOf: () => LeasedBody | null,
    limit: number,
  ): Promise<(BufferedBody & { readonly release: () => void }) | null> {
    const release = this.take(limit);
    if (release === null) return null;
    try {
      const body = bodyOf();
      if (body !== null) {
        const buffered = await bufferBody(body, limit);
        const end = (): void => {
          body.destroy();
          release();
        };
        return { ...buffered, release: end };
      }
    } catch (error) {
      release();
      throw error;
    }
    release();
    return null;
  }
}

/** The body of a request, of which a part or everything has been read. */
export interface BufferedBody {
  /** Its length if it has been read to its end; otherwise null. */
  readonly length: number | null;
  /** The body for one attempt. What has been read is the same for each attempt. */
  next(): LeasedBody;
}

/**
 * Reads up to `limit` bytes of a request body, or less if it ends before.
 *
 * @throws HttpError 499 if the client leaves; the error with which the body ends
 */
async function bufferBody(body: LeasedBody, limit: number): Promise<BufferedBody> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    while (length < limit && !body.readableEnded) {
      const chunk: unknown = body.read();
      if (Buffer.isBuffer(chunk)) {
        chunks.push(chunk);
        length += chunk.length;
      } else if (!body.readableEnded) await moreOf(body);
    }
  } catch (error) {
    body.destroy();
    throw error instanceof HttpError ? error : new HttpError(499, 'the client left');
  }
  const bytes = Buffer.concat(chunks, length);
  if (body.readableEnded) return { length, next: () => new WholeBody(bytes) };
  return { length: null, next: () => new BegunBody(bytes, body) };
}

/** Resolves when there is more to read, or nothing more will come. */
async function moreOf(body: LeasedBody): Promise<void> {
  const waiting = new AbortController();
  const { signal } = waiting;
  try {
    await Promise.race([
      once(body, 'readable', { signal }),
      once(body, 'end', { signal }),
      once(body, 'close', { signal }).then(() => {
        if (!body.readableEnded) throw body.errored ?? new Error('the body has ended early');
      }),
    ]);
  } finally {
    waiting.abort();
  }
}

class WholeBody extends Readable implements LeasedBody {
  /** Another attempt gets the same bytes. */
  readonly consumed = false;
  #bytes: Buffer | null;

  constructor(bytes: Buffer) {
    super();
    this.#bytes = bytes;
  }

  override _read(): void {
    const bytes = this.#bytes;
    this.#bytes = null;
    if (bytes !== null && bytes.length > 0) this.push(bytes);
    this.push(null);
  }
}

/** The bytes that have been read, and then the rest, which only one attempt can get. */
class BegunBody extends RelayedBody implements LeasedBody {
  consumed = false;
  #bytes: Buffer | null;

  constructor(bytes: Buffer, rest: LeasedBody) {
    super(rest);
    this.#bytes = bytes;
  }

  override _read(): void {
    const bytes = this.#bytes;
    this.#bytes = null;
    if (bytes !== null && bytes.length > 0) this.push(bytes);
    else super._read();
  }

  protected receive(chunk: Buffer): void {
    this.consumed = true;
    this.relay(chunk);
  }

  /** The next attempt gets the rest. */
  protected leave(): void {
    this.source.pause();
  }
}

/**
 * The body of a response that waits until it is complete, or until there are more than `limit` bytes of it. Only
 * then does the response to the client begin.
 */
export class BufferedResponse extends Writable {
  readonly #limit: number;
  /** Begins the response. `length` is that of the whole body; null if more will come. */
  readonly #begin: (length: number | null) => Writable;
  #waiting: Buffer[] = [];
  #bytes = 0;
  #target: Writable | null = null;

  constructor(limit: number, begin: (length: number | null) => Writable) {
    super();
    this.#limit = limit;
    this.#begin = begin;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (this.#target === null) {
      this.#waiting.push(chunk);
      this.#bytes += chunk.length;
      if (this.#bytes <= this.#limit) return done();
      this.#start(null);
      this.#pass(Buffer.concat(this.#waiting.splice(0)), done);
      return;
    }
    this.#pass(chunk, done);
  }

  /** Ends the response after everything has been written. `end` gets the stream to the client. */
  finish(hasTrailers: boolean, end: (target: Writable) => void): void {
    this.end((error?: Error | null) => {
      if (error instanceof Error) return;
      const target = this.#target ?? this.#start(hasTrailers ? null : this.#bytes);
      const rest = Buffer.concat(this.#waiting.splice(0));
      if (rest.length > 0 && !target.destroyed) target.write(rest);
      end(target);
    });
  }

  #start(length: number | null): Writable {
    const target = this.#begin(length);
    this.#target = target;
    stopWith(this, target);
    // The client has left, or another response has replaced this one: whoever writes here has to know.
    target.once('close', () => {
      if (!target.writableFinished) this.destroy(target.errored ?? undefined);
    });
    return target;
  }

  #pass(chunk: Buffer, done: () => void): void {
    if (this.#target === null) done();
    else writeTo(this.#target, chunk, done);
  }
}
