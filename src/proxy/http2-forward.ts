// Node also reports the end of a response after a reset or a lost connection. Here, only END_STREAM counts as
// the end.

import { type ClientHttp2Stream, constants, type OutgoingHttpHeaders } from 'node:http2';
import type { Readable } from 'node:stream';
import { HeaderList } from '../http/header-list.ts';
import { http2Fields, MAX_SENT_HEAD_BYTES, sentHeadBytes } from '../http/http2-fields.ts';
import { PiecesOfTurn } from '../http/small-pieces.ts';
import { HubgateError } from '../kernel/error.ts';
import { broken, clientLeft, RequestLifecycle } from './request-lifecycle.ts';
import { CONTINUE_WAIT_MS, type ForwardRequest, type ForwardSink } from './forwarding.ts';
import { ForwardError } from './forward-error.ts';
import type { Http2Session } from './http2-session.ts';
import { permittedTrailers } from './trailers.ts';
import type { DialTarget } from './upgrade-request.ts';

/**
 * Exchanges one request over a stream of a session (RFC 9113 §8.1). Resolves when the response is complete;
 * back-pressure works in both directions.
 *
 * @throws ForwardError; `upstream-refused` for a request that the upstream reports as not processed
 * @throws HttpError with which the body ended; the errors of the sink
 */
export function forwardByHttp2(
  session: Http2Session,
  target: DialTarget,
  request: ForwardRequest,
  sink: ForwardSink,
): Promise<void> {
  return new Promise((resolve, reject) => {
    new Http2Exchange(session, target, request, sink, resolve, reject).start();
  });
}

class Http2Exchange extends RequestLifecycle {
  readonly #session: Http2Session;
  readonly #target: DialTarget;
  readonly #request: ForwardRequest;
  readonly #sink: ForwardSink;
  #stream: ClientHttp2Stream | undefined;
  #error: Error | null = null;
  #isComplete = false;
  #pieces: PiecesOfTurn | null = null;
  #isBodyWanted = false;
  #trailers = new HeaderList();
  #stopWaiting: () => void = () => {};

  constructor(
    session: Http2Session,
    target: DialTarget,
    request: ForwardRequest,
    sink: ForwardSink,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    super(request, target.settings, resolve, reject);
    this.#session = session;
    this.#target = target;
    this.#request = request;
    this.#sink = sink;
  }

  start(): void {
    this.watchClient();
    this.guard(() => {
      const stream = this.#open();
      this.#stream = stream;
      this.phase = 'sent';
      this.#noteCompleteness(stream);
      this.#listen(stream);
      this.#begin(stream);
    });
  }

  #open(): ClientHttp2Stream {
    const { headers, body, target } = this.#request;
    if (sentHeadBytes(headers) + target.length > MAX_SENT_HEAD_BYTES) {
      throw new ForwardError('unsendable-request', 'unsent', headTooLarge());
    }
    try {
      return this.#session.session.request(this.#fields(), {
        endStream: body === null,
        waitForTrailers: body !== null && headers.has('trailer'),
      });
    } catch (error) {
      const { destroyed, closed } = this.#session.session;
      // The session may have ended since it was selected.
      if (destroyed || closed) throw new ForwardError('upstream-refused', 'unsent', error);
      throw new ForwardError('unsendable-request', 'unsent', error);
    }
  }

  #fields(): OutgoingHttpHeaders {
    const { method, target, headers, body, contentLength } = this.#request;
    const { address } = this.#target;
    const fields = headers.clone();
    fields.delete('host');
    if (body !== null && contentLength !== null) fields.set('content-length', contentLength);
    return {
      ...http2Fields(fields),
      ':method': method,
      ':path': target,
      ':scheme': address.protocol.slice(0, -1),
      ':authority': headers.get('host') ?? address.authority,
    };
  }

  /**
   * Node also ends the readable side if a stream was reset or its connection lost. Only an end while the
   * stream is not closed is the peer's own END_STREAM.
   */
  #noteCompleteness(stream: ClientHttp2Stream): void {
    const push = stream.push.bind(stream);
    stream.push = (chunk, encoding) => {
      this.#session.pieces.add();
      if (chunk !== null || stream.closed) return push(chunk, encoding);
      this.#isComplete = true;
      const more = push(null);
      if (this.phase === 'responding') stream.resume();
      return more;
    };
  }

  #listen(stream: ClientHttp2Stream): void {
    const fieldsOf = (raw: unknown): HeaderList => {
      this.#session.heard();
      const fields = HeaderList.fromRaw(Array.isArray(raw) ? raw : []);
      fields.deleteWhere((key) => key.startsWith(':'));
      return fields;
    };
    // The third argument, the fields in their original form, is missing in the types.
    const on = (event: string, listener: (...all: unknown[]) => void): void => {
      stream.on(event, (...all: unknown[]) => this.guard(() => listener(...all)));
    };
    // A 100 also causes `headers`, where it is counted.
    on('continue', () => this.#wantBody(stream));
    on('headers', (head, _, raw) => {
      if (this.mayInform()) this.#sink.onInformation(statusOf(head), fieldsOf(raw), '2.0');
    });
    on('response', (head, flags, raw) => {
      const isWhole = (Number(flags) & constants.NGHTTP2_FLAG_END_STREAM) !== 0;
      this.#receive(stream, statusOf(head), fieldsOf(raw), isWhole);
    });
    on('trailers', (_head, _, raw) => {
      this.#trailers = fieldsOf(raw);
    });
    stream.on('error', (error) => {
      this.#error = error;
    });
    stream.once('close', () => this.#onClose(stream));
  }

  #begin(stream: ClientHttp2Stream): void {
    const { headers, clock, body } = this.#request;
    if (body === null || !headers.has('expect')) this.#wantBody(stream);
    else this.#stopWaiting = clock.after(CONTINUE_WAIT_MS, () => this.#wantBody(stream));
  }

  /** Once; a late, repeated or unexpected 100 has no further effect. */
  #wantBody(stream: ClientHttp2Stream): void {
    if (this.#isBodyWanted || this.isSettled) return;
    this.#isBodyWanted = true;
    this.#stopWaiting();
    const { body } = this.#request;
    if (body === null) this.awaitHead();
    else this.#send(stream, body);
  }

  #send(stream: ClientHttp2Stream, body: Readable): void {
    this.send(
      body,
      stream,
      (chunk, flow) => flow.write(chunk),
      () => stream.end(),
    );
    stream.once('wantTrailers', () => {
      this.guard(() => {
        const { headers, trailers } = this.#request;
        const permitted = permittedTrailers(headers, trailers());
        const isSent = sentHeadBytes(permitted) <= MAX_SENT_HEAD_BYTES;
        stream.sendTrailers(isSent ? http2Fields(permitted) : {});
      });
    });
  }

  #receive(stream: ClientHttp2Stream, status: number, headers: HeaderList, isWhole: boolean): void {
    this.beginResponse();
    // RFC 9110 §10.1.1: with a final response, the request needs no body.
    this.#stopWaiting();
    const body = this.#sink.onHead(status, headers, '2.0', isWhole);
    this.body = body;
    if (body === null) return this.finish();
    body.on('error', (error) => this.failed(clientLeft(error)));
    this.awaitBody();
    const pieces = new PiecesOfTurn(true, (bytes) => this.pass(bytes, body));
    this.#pieces = pieces;
    stream.on('data', (chunk: Buffer) => {
      this.#session.heard();
      pieces.add(chunk);
    });
    stream.once('end', () => {
      pieces.flush();
      if (!this.#isComplete) return;
      this.guard(() => {
        this.#sink.onEnd(body, this.#trailers);
        this.finish();
      });
    });
  }

  #onClose(stream: ClientHttp2Stream): void {
    this.#pieces?.flush();
    if (this.isSettled) return;
    const error = this.#error ?? broken('The upstream closed the stream');
    if (this.phase === 'sent' && this.#isUnprocessed(stream)) {
      this.end(new ForwardError('upstream-refused', 'unsent', error));
    } else this.failed(error);
  }

  /** RFC 9113 §8.7: a stream that was refused, or that comes after the last processed one. */
  #isUnprocessed({ id, rstCode }: ClientHttp2Stream): boolean {
    if (rstCode === constants.NGHTTP2_REFUSED_STREAM) return true;
    return id === undefined || id > this.#session.lastStream;
  }

  /** Node drops the data of a stream when its connection ends, so the rest, at most a window, is read. */
  pause(): void {
    if (!this.#isComplete) this.#stream?.pause();
  }

  resume(): void {
    this.#stream?.resume();
  }

  /** RFC 9113 §8.1: the upstream is notified that the response is no longer wanted, so that it stops. */
  protected release(): void {
    this.#stopWaiting();
    const stream = this.#stream;
    if (stream === undefined || stream.destroyed) return;
    if (this.#isComplete && stream.writableEnded) return;
    stream.close(this.#isComplete ? constants.NGHTTP2_NO_ERROR : constants.NGHTTP2_CANCEL);
  }
}

function statusOf(head: unknown): number {
  const status = typeof head === 'object' && head !== null ? Reflect.get(head, ':status') : null;
  if (typeof status !== 'number')
    throw new HubgateError('upstream-broken', 'A response without a status');
  return status;
}

function headTooLarge(): HubgateError {
  const message = `The head of a request to an HTTP/2 upstream has more than ${MAX_SENT_HEAD_BYTES} bytes`;
  return new HubgateError('unsendable-request', message);
}
