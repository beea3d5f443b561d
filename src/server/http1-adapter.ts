import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import type { ResponseHead, ResponseStream, StreamListener } from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import { dropNominated } from '../http/hop-by-hop.ts';
import type { DisconnectSignal } from '../http/disconnect-signal.ts';
import { carrierOf, releaseConnection, writeAhead } from './node-internals.ts';
import type { RequestTarget } from './strict-request.ts';
import type { ProtocolAdapter } from './server-exchange.ts';
import type { Socket } from 'node:net';

/** Detaches a connection for its last response. Returns false if the connection stays with its server. */
export type LeaveConnection = (request: IncomingMessage, response: ServerResponse) => boolean;

/** A request that Node's HTTP/1.1 server has read. */
export class Http1Adapter implements ProtocolAdapter {
  readonly httpVersion: '1.0' | '1.1';
  readonly method: string;
  readonly host: string;
  readonly target: string;
  readonly spelledTarget: string;
  readonly headers: HeaderList;
  readonly hasBody: boolean;
  readonly body: Readable;
  readonly isBodyView = false;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #leaveConnection: LeaveConnection | null;

  /** @param leaveConnection called for a stream that wants the connection to itself; null: never */
  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    requestTarget: RequestTarget,
    leaveConnection: LeaveConnection | null,
  ) {
    this.#request = request;
    this.body = request;
    this.#response = response;
    this.#leaveConnection = leaveConnection;
    this.httpVersion = request.httpVersionMinor === 0 ? '1.0' : '1.1';
    this.method = request.method ?? 'GET';
    const { authority, target, spelled } = requestTarget;
    this.target = target;
    this.spelledTarget = spelled;
    const headers = HeaderList.fromRaw(request.rawHeaders);
    this.headers = headers;
    this.host = authority ?? headers.get('host') ?? '';
    // RFC 9112 §3.2.2: the authority takes precedence over a different Host.
    if (authority !== null && authority !== '') headers.set('host', authority);
    this.hasBody =
      headers.has('transfer-encoding') || Number(headers.get('content-length') ?? 0) > 0;
    dropNominated(headers);
    // The departure of the client already reports a failed write. Without a listener, the error would end the
    // process.
    response.on('error', ignore);
    // Its turn has not come yet.
    if (response.socket === null) closeWithConnection(request.socket, response);
  }

  trailers(): HeaderList {
    return HeaderList.fromRaw(this.#request.rawTrailers);
  }

  get abandoned(): boolean {
    const { destroyed, writableFinished } = this.#response;
    return !writableFinished && (destroyed || this.#request.socket.destroyed);
  }

  reportDisconnect(disconnect: DisconnectSignal): void {
    const response = this.#response;
    response.on('close', () => {
      if (!response.writableFinished) disconnect.trigger();
    });
  }

  inform(status: number, headers: HeaderList): void {
    if (this.httpVersion === '1.1') informHttp1(this.#response, status, headers);
  }

  prepare(_head: ResponseHead, isStream: boolean): void {
    // An event stream ends when the client or the gateway goes away. A client that returns opens a new
    // connection.
    if (isStream && this.#leaveConnection !== null) this.#response.shouldKeepAlive = false;
  }

  send({ status, headers }: ResponseHead, isBodyless: boolean, isRead: boolean): Writable {
    const response = this.#response;
    // Node throws for a Trailer field on a response without chunks.
    if (isBodyless || this.httpVersion === '1.0' || headers.has('content-length')) {
      headers.delete('trailer');
    }
    // RFC 9110 §10.1.1: it is unknown whether the body will still be sent, so its end is unknown too.
    if (!isRead) response.shouldKeepAlive = false;
    response.writeHead(status, headers.toRaw());
    // Not flushHeaders(): Node would write the head as UTF-8 and corrupt bytes beyond ASCII.
    response.write('', 'latin1');
    return response;
  }

  stream(body: Writable, disconnect: DisconnectSignal | undefined): ResponseStream | null {
    const response = this.#response;
    const { socket } = response;
    // A response whose turn has not come has no socket: earlier responses of the connection go first.
    if (body !== response || !response.chunkedEncoding || socket === null) return null;
    if (this.#leaveConnection?.(this.#request, response) !== true) return null;
    return new ConnectionStream(
      socket,
      disconnect === undefined ? null : () => disconnect.trigger(),
    );
  }

  sendTrailers(trailers: HeaderList): void {
    if (!this.#response.chunkedEncoding) return;
    this.#response.addTrailers(
      [...trailers].map(([name, value]): [string, string] => [name, value]),
    );
  }

  breakOff(): void {
    // A body that is delimited only by the end of the connection would look complete after an orderly close.
    if (this.httpVersion === '1.0') {
      const carrier = carrierOf(this.#request.socket);
      // A Unix socket, which has no address, cannot be reset: Node throws.
      if (carrier.remoteAddress !== undefined) carrier.resetAndDestroy();
    }
    this.#response.destroy();
  }

  discardRequest(): void {
    // The response no longer holds the connection, which waits for the rest of the request.
    this.#request.socket.destroy();
  }
}

/** Detaches the connection when the parser has finished. Until then, the server still has its listeners. */
export function leaveServer(request: IncomingMessage, response: ServerResponse): boolean {
  const { socket } = response;
  if (socket === null) return false;
  setImmediate(() => {
    if (!releaseConnection(request, response)) return;
    // Nothing reads what the client still sends. It is discarded, so that the end is noticed.
    socket.resume();
  });
  return true;
}

function ignore(): void {}

/** The responses of each connection that had to wait for responses to earlier requests. */
const queued = new WeakMap<Socket, Set<ServerResponse>>();

/**
 * Closes a response together with its connection if its turn has not come. Node closes only the response
 * whose turn it is. Data for the others, and their handlers, would wait forever.
 */
function closeWithConnection(socket: Socket, response: ServerResponse): void {
  const known = queued.get(socket);
  const all = known ?? new Set();
  if (known === undefined) {
    queued.set(socket, all);
    // One listener for all responses of a connection.
    socket.once('close', () => {
      for (const one of all) closeUnlessItsTurn(one);
    });
  }
  all.add(response);
  response.once('close', () => all.delete(response));
}

function closeUnlessItsTurn(response: ServerResponse): void {
  if (response.socket !== null) return;
  response.destroy();
  response.emit('close');
}

/** Bytes that may wait for a client. Beyond them, it gets no more informational responses. */
const MAX_WAITING_BYTES = 64 * 1024;

/** RFC 9110 §5.1. */
const NAME = /^[\w!#$%&'*+.^`|~-]+$/;
/** RFC 9110 §5.5: bytes; the tab is the only control character. */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/**
 * Sends a 1xx response before the head of `response` over HTTP/1.1. Names keep their case. Node's own
 * functions would drop most such responses, or their fields.
 */
function informHttp1(response: ServerResponse, status: number, headers: HeaderList): void {
  if (status === 100) {
    // Node closes the connection of a client that waits for 100 unless Node has sent the 100 itself.
    response.writeContinue();
    return;
  }
  if (response.writableLength > MAX_WAITING_BYTES) return;
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`;
  for (const [name, value] of headers) {
    // A line break in a field would begin another response.
    if (NAME.test(name) && VALUE.test(value)) head += `${name}: ${value}\r\n`;
  }
  writeAhead(response, `${head}\r\n`);
}

// An event stream over HTTP/1.1 has its connection to itself. Once its head is written, it leaves Node's
// server, including the parser and the messages, and writes to the socket directly. So one framed Buffer goes
// to every socket unchanged. If a stream comes after an earlier response, uses HTTP/1.0, or is encoded or
// delayed, it is an ordinary body instead.

/**
 * The stream that a socket carries. Shared functions find it here, so a stream needs no functions of its own.
 */
const STREAM = Symbol('stream on this connection');

interface Carrier {
  [STREAM]?: ConnectionStream;
}

const LAST_CHUNK = Buffer.from('0\r\n\r\n');

/**
 * The chunked body of the last response of an HTTP/1.1 connection (RFC 9112 §7.1). It has the connection to
 * itself: nothing else reads from it or writes to it.
 */
class ConnectionStream implements ResponseStream {
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
    this.#socket.write(LAST_CHUNK);
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
