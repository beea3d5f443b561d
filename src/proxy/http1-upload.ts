import type { Readable } from 'node:stream';
import { afterTurn } from '../http/body-memory.ts';
import { badSyntax, chunkHead } from '../http/http1-syntax.ts';
import { Http1Writer } from '../http/http1-writer.ts';
import { HubgateError, ignore } from '../kernel/error.ts';
import { ForwardError } from './forward-error.ts';
import { CONTINUE_WAIT_MS, type ForwardRequest } from './forwarding.ts';
import type { Http1Connection } from './http1-connection.ts';
import { emptyBodyField } from './http1-head.ts';
import { permittedTrailers } from './trailers.ts';

/**
 * How long the head waits for the first piece of the body, in milliseconds. An upstream may answer without the body, and
 * the client may wait for that.
 */
const HEAD_DELAY_MS = 20;

/** The listener for the course of an upload. */
export interface UploadListener {
  /** The upstream accepts no more, and may respond instead. */
  uploadHeld(): void;
  /** It accepts more. */
  uploadFreed(): void;
  /** The complete request has been written. */
  uploadEnded(): void;
  /** The request cannot be completed, so the connection can carry nothing else. */
  failed(error: Error): void;
}

/**
 * Sends a request with a body. The length that frames it is exactly what was declared: a body that ends too
 * early or too late would otherwise shift the beginning of the next request (RFC 9112 §11.2).
 */
export class Http1Upload {
  readonly #request: ForwardRequest;
  readonly #body: Readable;
  readonly #connection: Http1Connection;
  readonly #listener: UploadListener;
  /** The head, until it has been written. */
  #head: Http1Writer | null;
  /** Bytes of the body that have not arrived; null: the body is sent in chunks. */
  #left: number | null;
  #state: 'waiting' | 'sending' | 'complete' | 'stopped' = 'waiting';
  #isHeld = false;
  #stopWaiting = ignore;

  /**
   * @param head without the fields that frame the body
   * @throws ForwardError `unsendable-request`
   */
  constructor(
    request: ForwardRequest,
    body: Readable,
    head: Http1Writer,
    connection: Http1Connection,
    listener: UploadListener,
  ) {
    this.#request = request;
    this.#body = body;
    this.#head = head;
    this.#connection = connection;
    this.#listener = listener;
    this.#left = lengthOf(request);
  }

  /** Whether anything of the request has been written. */
  get hasBegun(): boolean {
    return this.#head === null;
  }

  get isComplete(): boolean {
    return this.#state === 'complete';
  }

  /**
   * Takes the body only now. A request that no upstream received can then be sent to another one.
   */
  start(): void {
    const { headers, clock } = this.#request;
    if (headers.has('expect')) {
      this.#sendHead();
      this.#stopWaiting = clock.after(CONTINUE_WAIT_MS, () => this.sendBody());
      return;
    }
    // The head is sent with the first piece, so no upstream sees a request whose body is malformed from the start.
    this.sendBody();
    // The client may keep its stream open although there is no body.
    if (this.#left === 0) this.#sendHead();
    else afterTurn(() => this.#awaitPiece());
  }

  #awaitPiece(): void {
    if (this.#head === null || this.#state !== 'sending') return;
    this.#stopWaiting = this.#request.clock.after(HEAD_DELAY_MS, () => {
      if (this.#state === 'sending') this.#sendHead();
    });
  }

  /** Once; a late, repeated or unexpected 100 has no further effect. */
  sendBody(): void {
    if (this.#state !== 'waiting') return;
    this.#state = 'sending';
    this.#stopWaiting();
    const body = this.#body;
    body.on('error', (error) => this.#fail(error));
    body.on('data', (piece: Buffer) => this.#send(piece));
    body.once('end', () => this.#end());
    body.once('close', () => this.#fail(endedEarly()));
    body.resume();
  }

  /** RFC 9110 §10.1.1: with a final response, the request needs no body. */
  refuseBody(): void {
    this.#stopWaiting();
  }

  /** The connection accepts more. */
  drained(): void {
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.#listener.uploadFreed();
    if (this.#state === 'sending') this.#body.resume();
  }

  /** Nothing more is written. */
  stop(): void {
    this.#stopWaiting();
    if (this.#state === 'sending') this.#body.pause();
    if (this.#state !== 'complete') this.#state = 'stopped';
  }

  #send(piece: Buffer): void {
    // A chunk without data would be the last one.
    if (this.#state !== 'sending' || piece.length === 0) return;
    const connection = this.#connection;
    let accepts: boolean;
    connection.cork();
    if (this.#left === null) {
      this.#sendHead();
      connection.write(chunkHead(piece.length));
      connection.pass(piece);
      accepts = connection.write('\r\n');
    } else {
      if (piece.length > this.#left) return this.#fail(wrongLength());
      this.#sendHead();
      this.#left -= piece.length;
      accepts = connection.pass(piece);
    }
    connection.uncork();
    if (accepts || this.#isHeld) return;
    this.#isHeld = true;
    this.#body.pause();
    this.#listener.uploadHeld();
  }

  #sendHead(): void {
    // The number, and not its digits as the client has written them, which another reader may understand otherwise.
    this.#sendHeadWith(
      this.#left === null ? 'transfer-encoding: chunked\r\n' : `content-length: ${this.#left}\r\n`,
    );
  }

  /** @param framing the field that frames the body */
  #sendHeadWith(framing: string): void {
    const head = this.#head;
    if (head === null) return;
    this.#head = null;
    this.#stopWaiting();
    head.text(framing);
    head.text('\r\n');
    this.#connection.send(head);
  }

  #end(): void {
    if (this.#state !== 'sending') return;
    if (this.#left !== null && this.#left > 0) return this.#fail(wrongLength());
    try {
      this.#finish();
    } catch (error) {
      this.#fail(error instanceof Error ? error : endedEarly());
      return;
    }
    this.#state = 'complete';
    this.#listener.uploadEnded();
  }

  #finish(): void {
    const { method, headers, trailers } = this.#request;
    const connection = this.#connection;
    if (this.#left !== null) return this.#sendHead();
    const announces = headers.has('trailer');
    if (this.#head !== null && !announces) return this.#sendHeadWith(emptyBodyField(method));
    const end = new Http1Writer();
    end.text('0\r\n');
    if (announces && permittedTrailers(headers, trailers()).writeLines(end, '') !== null) {
      end.discard();
      throw new ForwardError('unsendable-request', 'sent', badSyntax('A trailer cannot be sent'));
    }
    end.text('\r\n');
    connection.cork();
    this.#sendHead();
    connection.send(end);
    connection.uncork();
  }

  #fail(error: Error): void {
    if (this.#state !== 'sending') return;
    this.#stopWaiting();
    this.#state = 'stopped';
    this.#listener.failed(error);
  }
}

/** The declared length; null for chunks, which are the only framing that can carry trailer fields. */
function lengthOf({ headers, contentLength }: ForwardRequest): number | null {
  if (contentLength === null || headers.has('trailer')) return null;
  const length = /^\d+$/.test(contentLength) ? Number(contentLength) : NaN;
  if (Number.isSafeInteger(length)) return length;
  throw new ForwardError('unsendable-request', 'unsent', wrongLength());
}

function wrongLength(): Error {
  return new HubgateError(
    'unsendable-request',
    'The body does not have the length that it declares',
  );
}

function endedEarly(): Error {
  return new HubgateError('upstream-aborted', 'The body of the request was aborted');
}
