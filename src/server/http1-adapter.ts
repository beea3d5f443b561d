import type { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import type { DisconnectSignal } from '../http/disconnect-signal.ts';
import type { ResponseHead, ResponseStream } from '../http/exchange.ts';
import { listsToken } from '../http/field-values.ts';
import { HeaderList } from '../http/header-list.ts';
import { httpDate } from '../http/http-date.ts';
import { Http1Writer } from '../http/http1-writer.ts';
import { Http1EventStream } from './http1-event-stream.ts';
import { Http1RequestBody } from './http1-request-body.ts';
import type { Http1Head } from './http1-head.ts';
import { Http1Response, type ResponseFraming, writeHead } from './http1-response.ts';
import {
  MAX_WAITING_FOR_INFORMATIONAL,
  type ProtocolAdapter,
  RequestFacts,
  resetIfUndelimited,
  validFields,
} from './server-exchange.ts';
import type { RequestTarget } from './strict-request.ts';

/** What a request and its response use of their connection. */
export interface ExchangeCarrier {
  /** Bytes of a trailer section. */
  readonly maxHeaderSize: number;
  /** Time in which the client may send the next request; 0 for no limit. */
  readonly idleMs: number;
  readonly isClosed: boolean;
  /** Reads on, because the reader of the current body wants more. */
  wanted(): void;
  /** The socket if it is the turn of a response; null while earlier ones have not been sent, or if it was left. */
  turnOf(exchange: Http1Adapter): Socket | null;
  /** Whether a request waits for an earlier one, because one of both is not safe. */
  mustWait(exchange: Http1Adapter): boolean;
  /** Whether the connection is to be closed after a response although no response has said so. */
  closesAfter(exchange: Http1Adapter): boolean;
  /** The last response has begun, so no further request may begin (RFC 9112 §9.6). */
  endRequests(): void;
  /** A response has been sent completely. */
  sent(exchange: Http1Adapter): void;
  /**
   * Leaves the connection to a response. Everything that the client still sends is discarded. Returns false if
   * the connection cannot be left.
   */
  leave(exchange: Http1Adapter): boolean;
  /** Cuts the connection. */
  destroy(): void;
}

/** One request of a connection, and its response. */
export class Http1Adapter extends RequestFacts<'1.0' | '1.1'> implements ProtocolAdapter {
  readonly hasBody: boolean;
  readonly isBodyView = false;
  /** The body that the connection has to read; null if there is none. */
  readonly bodyToRead: Http1RequestBody | null;
  /** Whether the client asks for the one supported protocol besides HTTP (RFC 6455 §4.1). */
  readonly wantsWebSocket: boolean;
  readonly #connection: ExchangeCarrier;
  readonly #asksToKeep: boolean;
  #body: Readable | null;
  #isLast: boolean;
  #response: Http1Response | null = null;
  #disconnect: DisconnectSignal | null = null;
  /** Informational responses that wait for their turn. */
  #ahead: Http1Writer | null = null;
  /** Called when the earlier responses have been sent, and when the client has left. */
  #onTurn: (() => void) | null = null;
  #isSent = false;
  #isBroken = false;

  constructor(
    connection: ExchangeCarrier,
    { httpVersion, method, headers }: Http1Head,
    target: RequestTarget,
  ) {
    super(httpVersion, method, headers, target, target.authority);
    this.#connection = connection;
    const options = headers.combined('connection');
    this.#asksToKeep = listsToken(options, 'keep-alive');
    this.#isLast = listsToken(options, 'close') || (httpVersion === '1.0' && !this.#asksToKeep);
    const isUpgrade = method === 'GET' && httpVersion === '1.1' && listsToken(options, 'upgrade');
    this.wantsWebSocket = isUpgrade && headers.get('upgrade')?.toLowerCase() === 'websocket';
    const isChunked = headers.has('transfer-encoding');
    const length = isChunked ? 0 : Number(headers.get('content-length') ?? 0);
    this.hasBody = isChunked || length > 0;
    this.bodyToRead = this.hasBody
      ? new Http1RequestBody(isChunked ? 'chunked' : length, connection.maxHeaderSize, () =>
          connection.wanted(),
        )
      : null;
    this.#body = this.bodyToRead;
  }

  get body(): Readable {
    this.#body ??= new Http1RequestBody(0, 0, () => {});
    return this.#body;
  }

  /** The connection closes after the response. */
  get isLast(): boolean {
    return this.#isLast;
  }

  endsConnection(): void {
    this.#isLast = true;
  }

  get hasBegun(): boolean {
    return this.#response !== null;
  }

  /** Bytes of the response that wait for their turn or for the client, and of the body that wait for a reader. */
  get waitingBytes(): number {
    return (this.#response?.writableLength ?? 0) + (this.bodyToRead?.readableLength ?? 0);
  }

  trailers(): HeaderList {
    return this.bodyToRead?.trailers.clone() ?? new HeaderList();
  }

  get abandoned(): boolean {
    return !this.#isSent && (this.#isBroken || this.#connection.isClosed);
  }

  reportDisconnect(disconnect: DisconnectSignal): void {
    this.#disconnect = disconnect;
  }

  awaitTurn(): Promise<void> | null {
    if (this.#isBroken || !this.#connection.mustWait(this)) return null;
    return new Promise((resolve) => {
      this.#onTurn = resolve;
    });
  }

  /** Nothing more can be read or sent. */
  connectionClosed(): void {
    const body = this.bodyToRead;
    if (body !== null && !body.isComplete) body.destroy();
    if (this.#isSent) return;
    this.#isBroken = true;
    this.#response?.destroy();
    this.#disconnect?.trigger();
    this.#onTurn?.();
  }

  /** Discards the rest of a body that nobody has read by the end of the response. */
  dropBody(): void {
    this.bodyToRead?.discard();
  }

  beginTurn(socket: Socket): void {
    if (this.#isBroken) {
      this.#connection.destroy();
      return;
    }
    this.#ahead?.sendTo(socket);
    this.#ahead = null;
    this.#response?.beginTurn(socket);
    this.#onTurn?.();
  }

  inform(status: number, headers: HeaderList): void {
    if (this.httpVersion === '1.0' || this.#isBroken) return;
    const socket = this.#connection.turnOf(this);
    const waiting = (socket?.writableLength ?? 0) + (this.#ahead?.length ?? 0);
    // Only 100 has an effect that the client waits for.
    if (waiting > MAX_WAITING_FOR_INFORMATIONAL && status !== 100) return;
    const out = this.#ahead ?? new Http1Writer();
    writeHead(out, status, validFields(headers));
    out.text('\r\n');
    if (socket === null) {
      out.keep();
      this.#ahead = out;
    } else out.sendTo(socket);
  }

  prepare(_head: ResponseHead, isStream: boolean): void {
    // An event stream ends when the client or the gateway goes away. A client that returns opens a new
    // connection.
    if (isStream) this.#isLast = true;
  }

  send({ status, headers }: ResponseHead, isBodyless: boolean, isRead: boolean): Writable {
    // RFC 9110 §10.1.1: it is unknown whether the body will still be sent, so its end is unknown too.
    if (!isRead && this.hasBody) this.#isLast = true;
    const length = headers.get('content-length');
    const framing = framingOf(this.httpVersion, isBodyless, length);
    if (framing === 'close') this.#isLast = true;
    const head = this.#head(status, headers, framing);
    const response = new Http1Response(
      this.#connection.turnOf(this),
      head,
      framing,
      framing === 'length' ? Number(length) : 0,
      this,
    );
    this.#response = response;
    if (this.#isBroken) response.destroy();
    return response;
  }

  stream(body: Writable, disconnect: DisconnectSignal | undefined): ResponseStream | null {
    const response = this.#response;
    // A response whose turn has not come has no socket: earlier responses of the connection go first.
    const socket = this.#connection.turnOf(this);
    if (body !== response || response?.framing !== 'chunks' || socket === null) return null;
    if (this.wantsWebSocket || !this.#connection.leave(this)) return null;
    this.#isSent = true;
    const onLeave = disconnect === undefined ? null : () => disconnect.trigger();
    return new Http1EventStream(socket, response.takeHead(), onLeave);
  }

  sendTrailers(trailers: HeaderList): void {
    let text = '';
    for (const [name, value] of validFields(trailers)) text += `${name}: ${value}\r\n`;
    this.#response?.setTrailers(text);
  }

  breakOff(): void {
    if (this.#isSent || this.#isBroken) return;
    this.#isBroken = true;
    const socket = this.#connection.turnOf(this);
    this.#response?.destroy();
    if (socket === null) return;
    resetIfUndelimited(this, socket);
    this.#connection.destroy();
  }

  discardRequest(): void {
    // The response no longer holds the connection, which waits for the rest of the request.
    this.#connection.destroy();
  }

  responseSent(): void {
    this.#isSent = true;
    this.#connection.sent(this);
  }

  #head(status: number, headers: HeaderList, framing: ResponseFraming): Http1Writer {
    const { idleMs } = this.#connection;
    const options = headers.combined('connection');
    if (listsToken(options, 'close') || this.#connection.closesAfter(this)) this.#isLast = true;
    headers.deleteWhere(isManaged);
    if (framing !== 'chunks') headers.delete('trailer');
    const out = new Http1Writer();
    writeHead(out, status, headers);
    if (!headers.has('date')) out.field('Date', httpDate());
    if (this.#isLast) {
      out.text('Connection: close\r\n');
      this.#connection.endRequests();
    } else {
      out.text('Connection: keep-alive\r\n');
      if (idleMs >= 1000) out.field('Keep-Alive', `timeout=${Math.floor(idleMs / 1000)}`);
    }
    if (framing === 'chunks') out.text('Transfer-Encoding: chunked\r\n');
    out.text('\r\n');
    return out;
  }
}

/** Whether a field concerns the connection, which writes it itself. */
function isManaged(key: string): boolean {
  return key === 'connection' || key === 'keep-alive' || key === 'transfer-encoding';
}

function framingOf(
  httpVersion: '1.0' | '1.1',
  isBodyless: boolean,
  length: string | undefined,
): ResponseFraming {
  if (isBodyless) return 'none';
  if (length !== undefined) return 'length';
  return httpVersion === '1.0' ? 'close' : 'chunks';
}
