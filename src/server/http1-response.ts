// What a response over HTTP/1.1 writes to its connection. Its head waits for the first bytes of the body until the
// end of the turn, so that both leave in one write. The body calls back when the system has taken a piece, and its
// memory can then be used again.

import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import type { HeaderList } from '../http/header-list.ts';
import { chunkHead, LAST_CHUNK } from '../http/http1-syntax.ts';
import { Http1Writer } from '../http/http1-writer.ts';
import { CALLS_BACK_WHEN_SENT } from '../http/body-memory.ts';
import { HubgateError, ignore } from '../kernel/error.ts';

/** How a client finds the end of a body (RFC 9112 §6.3): the last is the end of the connection. */
export type ResponseFraming = 'none' | 'length' | 'chunks' | 'close';

/** Bytes of a body that may wait for the client before its writer is asked to wait. */
const MAX_WAITING_BYTES = 64 * 1024;
/** Bytes that are copied, so that they leave in one write. */
const MAX_JOINED_BYTES = 16 * 1024;

/**
 * Adds the line and the fields of a head, without the empty line at its end.
 *
 * @throws HubgateError `invalid-response-field`
 */
export function writeHead(out: Http1Writer, status: number, headers: HeaderList): void {
  out.text(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`);
  const invalid = headers.writeLines(out, '');
  if (invalid === null) return;
  out.discard();
  // A line break in a field would begin another field or another response.
  const shown = JSON.stringify(invalid.slice(0, 64));
  throw new HubgateError('invalid-response-field', `The response field ${shown} is not valid`);
}

interface Http1ResponseListener {
  /** Everything has been passed to the system. */
  responseSent(): void;
  /** The body was destroyed before its end. */
  breakOff(): void;
}

/** The body of a response, and the head before it. */
export class Http1Response extends Writable {
  readonly [CALLS_BACK_WHEN_SENT] = true;
  readonly framing: ResponseFraming;
  readonly #listener: Http1ResponseListener;
  /** null until earlier responses of the connection have been sent. */
  #socket: Socket | null;
  /** null once it has been written. */
  #head: Http1Writer | null;
  /** Bytes that are missing; only of a body with a length. */
  #left: number;
  /** Bytes of the content that have been written to the connection. */
  #writtenBytes = 0;
  /** The same without the last write, which the stream counts as waiting until the system has taken it. */
  #earlierBytes = 0;
  /** The last chunk and the trailer section; null once they have been written. */
  #ending: string | null;
  #isEnding = false;
  #isCorked = true;
  /** What waits for the turn of this response. */
  #waiting: (() => void) | null = null;

  /**
   * @param length bytes of the body; only with the framing `length`
   */
  constructor(
    socket: Socket | null,
    head: Http1Writer,
    framing: ResponseFraming,
    length: number,
    listener: Http1ResponseListener,
  ) {
    super({ highWaterMark: MAX_WAITING_BYTES });
    this.framing = framing;
    this.#socket = socket;
    this.#head = head;
    if (socket === null) head.keep();
    this.#left = length;
    this.#ending = framing === 'chunks' ? LAST_CHUNK : null;
    this.#listener = listener;
    // The disconnect of the client reports a failed write already. Without a listener, the error would end the
    // process.
    this.on('error', ignore);
    this.cork();
    process.nextTick(flush, this);
  }

  /** Bytes of the content that have been written, and that wait unless they never will be. */
  get contentBytes(): number {
    const waiting = this.destroyed ? 0 : this.writableLength;
    return waiting === 0 ? this.#writtenBytes : this.#earlierBytes + waiting;
  }

  /** Sets the trailer section of a chunked body. Called before its end. */
  setTrailers(text: string): void {
    if (this.#ending !== null) this.#ending = `0\r\n${text}\r\n`;
  }

  /** Earlier responses have been sent. */
  beginTurn(socket: Socket): void {
    this.#socket = socket;
    const waiting = this.#waiting;
    this.#waiting = null;
    if (waiting !== null) waiting();
    else this.flush();
  }

  /** Writes what waits for the end of the turn; the head also if nothing of the body waits. */
  flush(): void {
    if (this.#isCorked) {
      this.#isCorked = false;
      this.uncork();
    }
    if (this.#head === null || this.#socket === null || this.destroyed) return;
    if (this.writableLength === 0 && !this.writableEnded) this.takeHead()?.sendTo(this.#socket);
  }

  /** Leaves everything that follows the head to the caller, and returns the head if it has not been written. */
  takeHead(): Http1Writer | null {
    const head = this.#head;
    this.#head = null;
    return head;
  }

  override end(chunk?: unknown, encoding?: unknown, done?: unknown): this {
    this.#isEnding = true;
    Reflect.apply(super.end, this, [chunk, encoding, done]);
    return this;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#send([chunk], chunk.length, done);
  }

  override _writev(pieces: readonly { readonly chunk: Buffer }[], done: Done): void {
    let bytes = 0;
    const chunks = pieces.map(({ chunk }) => {
      bytes += chunk.length;
      return chunk;
    });
    this.#send(chunks, bytes, done);
  }

  override _final(done: Done): void {
    if (this.#socket === null) return this.#awaitTurn(done);
    if (this.#left > 0 && this.framing === 'length') {
      done(new HubgateError('response-incomplete', 'The body is shorter than its Content-Length'));
      return;
    }
    const head = this.takeHead();
    const ending = this.#takeEnding();
    if (head === null && ending === '') {
      done();
      this.#listener.responseSent();
    } else this.#finishWith(head ?? new Http1Writer(), ending, this.#socket, done);
  }

  #awaitTurn(done: Done): void {
    this.#waiting = () => this._final(done);
  }

  #finishWith(out: Http1Writer, ending: string, socket: Socket, done: Done): void {
    out.text(ending);
    out.sendTo(socket, (error) => {
      done(error);
      if (error === undefined || error === null) this.#listener.responseSent();
    });
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#waiting = null;
    this.takeHead()?.discard();
    done(error);
    if (!this.writableFinished) this.#listener.breakOff();
  }

  #send(chunks: readonly Buffer[], bytes: number, done: Done): void {
    const socket = this.#socket;
    if (socket === null) {
      this.#waiting = () => this.#send(chunks, bytes, done);
      return;
    }
    if (this.framing === 'length') {
      this.#left -= bytes;
      if (this.#left < 0) {
        done(new HubgateError('response-too-long', 'The body is longer than its Content-Length'));
        return;
      }
    }
    this.#earlierBytes = this.#writtenBytes;
    this.#writtenBytes += bytes;
    const isChunked = this.framing === 'chunks' && bytes > 0;
    const out = this.takeHead() ?? new Http1Writer();
    if (isChunked) out.text(chunkHead(bytes));
    // The last chunk goes with the last bytes of the body, behind which nothing waits.
    const isLast = this.#isEnding && bytes === this.writableLength;
    const after = (isChunked ? '\r\n' : '') + (isLast ? this.#takeEnding() : '');
    if (out.length + bytes + after.length <= MAX_JOINED_BYTES) {
      for (const chunk of chunks) out.bytes(chunk);
      out.text(after);
      out.sendTo(socket, done);
      return;
    }
    socket.cork();
    if (out.length > 0) out.sendTo(socket);
    else out.discard();
    const last = chunks.length - 1;
    for (const [index, chunk] of chunks.entries()) {
      if (index === last && after === '') socket.write(chunk, done);
      else socket.write(chunk);
    }
    if (after !== '') socket.write(after, 'latin1', done);
    socket.uncork();
  }

  #takeEnding(): string {
    const ending = this.#ending ?? '';
    this.#ending = null;
    return ending;
  }
}

type Done = (error?: Error | null) => void;

function flush(response: Http1Response): void {
  response.flush();
}
