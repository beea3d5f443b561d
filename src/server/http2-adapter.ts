import {
  constants,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
  type ServerStreamResponseOptions,
} from 'node:http2';
import type { Readable, Writable } from 'node:stream';
import { breakOff, closeAnswered, endStream } from '../http/body-end.ts';
import type { ResponseHead, ResponseStream } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import {
  http2FieldList,
  http2Fields,
  NODE_SENT_HEAD_BYTES,
  readHttp2Head,
  sentHeadBytes,
  takesFieldLists,
} from '../http/http2-fields.ts';
import type { DisconnectSignal } from '../http/disconnect-signal.ts';
import { HubgateError } from '../kernel/error.ts';
import { CarriedStream } from './http1-event-stream.ts';
import type { RequestTarget } from './strict-request.ts';
import { type ProtocolAdapter, RequestFacts } from './server-exchange.ts';

declare module 'node:http2' {
  interface ServerHttp2Stream {
    respond(
      fields: OutgoingHttpHeaders | readonly string[],
      options?: ServerStreamResponseOptions,
    ): void;
  }
}

const TAKES_LISTS = takesFieldLists(process.versions.node);

/** A request as an HTTP/2 server reads it. */
export interface Http2Request {
  readonly stream: ServerHttp2Stream;
  /** Alternating names and values in their original order, including pseudo-header fields. */
  readonly rawHeaders: readonly string[];
  /** The source of the body: the stream, or a stream in front of it. */
  readonly body: Readable;
  readonly target: RequestTarget;
  /** The limit of the server for heads and trailer sections. */
  readonly maxSentHeadBytes: number;
}

/** A request that Node's HTTP/2 server has read. */
export class Http2Adapter extends RequestFacts<'2.0'> implements ProtocolAdapter {
  readonly hasBody: boolean;
  readonly body: Readable;
  readonly isBodyView: boolean;
  readonly #stream: ServerHttp2Stream;
  readonly #maxSentHeadBytes: number;
  /** Trailer fields of the request. */
  #trailers: readonly string[] = [];
  #mayHaveTrailers = false;
  /** Bytes of the informational responses. */
  #informedBytes = 0;
  /** Trailer fields of the response; null if its body ends with the stream. */
  #ending: HeaderList | null = null;

  constructor({ stream, rawHeaders, body, target, maxSentHeadBytes }: Http2Request) {
    const { method, authority, headers } = readHttp2Head(rawHeaders);
    // RFC 9113 §8.3.1. A foreign server may let several Host fields through; one remains.
    super('2.0', method, headers, target, authority ?? headers.get('host'));
    this.#stream = stream;
    this.#maxSentHeadBytes = maxSentHeadBytes;
    this.body = body;
    this.isBodyView = body === stream;
    this.hasBody = !stream.endAfterHeaders;
    if (this.hasBody) {
      stream.once('trailers', (_record: unknown, _flags: unknown, raw: readonly string[]) => {
        this.#trailers = raw;
      });
    }
  }

  trailers(): HeaderList {
    return HeaderList.fromRaw(this.#trailers);
  }

  get abandoned(): boolean {
    return isAbandoned(this.#stream);
  }

  reportDisconnect(disconnect: DisconnectSignal): void {
    const stream: ServerHttp2Stream & Carrier = this.#stream;
    stream[DISCONNECT] = disconnect;
    stream.on('close', reportClose).on('aborted', reportAbort);
  }

  inform(status: number, headers: HeaderList): void {
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return;
    // They wait in the process for a client that does not read.
    this.#informedBytes += sentHeadBytes(headers);
    if (status !== 100 && this.#informedBytes > NODE_SENT_HEAD_BYTES) return;
    stream.additionalHeaders(responseFields(status, headers));
  }

  prepare({ headers }: ResponseHead, isStream: boolean): void {
    // RFC 9113 §8.1 allows them beside a length too. Few such responses have them, and waiting for them costs time.
    this.#mayHaveTrailers =
      !isStream &&
      (!headers.has('content-length') ||
        headers.has('trailer') ||
        headers.get('content-type')?.startsWith('application/grpc') === true);
  }

  #canSend(headers: HeaderList): boolean {
    return sentHeadBytes(headers) <= this.#maxSentHeadBytes;
  }

  /** @throws HubgateError `response-head-too-large` */
  send(head: ResponseHead, isBodyless: boolean, isRead: boolean): Writable {
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return stream;
    if (!this.#canSend(head.headers)) {
      const message = `The head of a response has more than ${this.#maxSentHeadBytes} bytes`;
      throw new HubgateError('response-head-too-large', message);
    }
    // RFC 9110 §15: a client treats a status beyond 599 as 500; HTTP/2 cannot carry it here.
    const status = head.status > 599 ? 500 : head.status;
    const fields = TAKES_LISTS
      ? http2FieldList(status, head.headers)
      : responseFields(status, head.headers);
    if (isBodyless) stream.respond(fields, { endStream: true });
    else if (this.#mayHaveTrailers) {
      stream.respond(fields, { waitForTrailers: true });
      // On a foreign server, Node's own response would send trailers as well, which ends the process.
      stream.removeAllListeners('wantTrailers').once('wantTrailers', () => {
        stream.sendTrailers(this.#ending === null ? {} : http2Fields(this.#ending));
      });
    } else stream.respond(fields);
    // The client of a tunnel may send for as long as it likes.
    if (this.hasBody && head.opensTunnel !== true) {
      // A client that has declared no content may have left its side open until it has the response.
      const isWanted = isRead && this.headers.get('content-length') !== '0';
      stream.once('finish', isWanted ? linger : () => closeAnswered(stream));
    }
    return stream;
  }

  stream(body: Writable): ResponseStream | null {
    return body === this.#stream ? new Http2Stream(this.#stream) : null;
  }

  sendTrailers(trailers: HeaderList): void {
    this.#ending = this.#canSend(trailers) ? trailers : null;
  }

  breakOff(): void {
    breakOff(this.#stream);
  }

  discardRequest(): void {
    // RFC 9113 §8.1: a response that is complete stays so, although the rest of the request never arrives.
    if (this.#stream.writableEnded) endStream(this.#stream);
    else breakOff(this.#stream);
  }
}

function responseFields(status: number, headers: HeaderList): OutgoingHttpHeaders {
  const fields: OutgoingHttpHeaders = http2Fields(headers);
  fields[':status'] = status;
  return fields;
}

/** A shared function finds it on a stream, so a request needs no function of its own. */
const DISCONNECT = Symbol('whom to tell that the client has left');

interface Carrier {
  [DISCONNECT]?: DisconnectSignal | undefined;
}

/** How long a client may still send the rest of its request after the response, in milliseconds. */
const LINGER_MS = 2000;

/** Ends a stream whose client does not end its side, perhaps because the response has made the body pointless. */
function linger(this: ServerHttp2Stream): void {
  if (this.readableEnded || this.destroyed) return;
  const timer = setTimeout(() => closeAnswered(this), LINGER_MS).unref();
  this.once('close', () => clearTimeout(timer));
}

/** Whether the client of a stream has left before the response was complete. */
function isAbandoned(stream: ServerHttp2Stream): boolean {
  if (!stream.closed && !stream.destroyed) return false;
  // A stream that the client has reset reports its writable side as finished nevertheless, and Node ends that of a HEAD
  // request at once.
  return (
    stream.aborted ||
    stream.rstCode !== constants.NGHTTP2_NO_ERROR ||
    !stream.headersSent ||
    !stream.writableFinished
  );
}

function reportClose(this: ServerHttp2Stream & Carrier): void {
  if (isAbandoned(this)) this[DISCONNECT]?.trigger();
  this[DISCONNECT] = undefined;
}

function reportAbort(this: Carrier): void {
  this[DISCONNECT]?.trigger();
}

/** The body of a response in an HTTP/2 stream, without trailer fields. */
class Http2Stream extends CarriedStream<ServerHttp2Stream> {
  readonly framing = 'plain';

  constructor(stream: ServerHttp2Stream) {
    super(stream, stream.destroyed);
  }

  write(framed: Buffer): boolean {
    return this.isOver || this.carrier.destroyed || this.carrier.write(framed);
  }

  destroy(): void {
    this.isOver = true;
    breakOff(this.carrier);
  }

  protected endCarrier(): void {
    this.carrier.end();
  }
}
