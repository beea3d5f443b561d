import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import type { Exchange, ResponseHead, ResponseStream } from '../http/exchange.ts';
import { NODE_SENT_HEAD_BYTES } from '../http/http2-fields.ts';
import { ignore } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { Http2Adapter } from './http2-adapter.ts';
import {
  MAX_WAITING_FOR_INFORMATIONAL,
  type ProtocolAdapter,
  RequestFacts,
  resetIfUndelimited,
  ServerExchange,
  validFields,
} from './server-exchange.ts';
import { requestTarget, type RequestTarget } from './strict-request.ts';
import type { Readable, Writable } from 'node:stream';
import { HeaderList } from '../http/header-list.ts';
import type { DisconnectSignal } from '../http/disconnect-signal.ts';
import { hasSentContinue, writeAhead } from '../kernel/node-internals.ts';
import type { Socket } from 'node:net';

/**
 * Creates the exchange of a request that a foreign server has read, also through Node's HTTP/2 compatibility
 * layer. The connection stays with that server.
 */
export function mountedExchange(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
  log: Logger,
): Exchange {
  const { socket } = request;
  const connection = {
    secure: 'encrypted' in socket && socket.encrypted,
    tlsVersion: 'getProtocol' in socket ? socket.getProtocol() : null,
    peer: { address: socket.remoteAddress ?? '', port: socket.remotePort ?? 0 },
    upgrade: null,
  };
  const keeps = { forwardRawPath: false, underscoresInHeaders: false };
  const settings = { log, clientAddress: null, keeps, silence: null };
  return new ServerExchange(adapterOf(request, response), settings, connection);
}

function adapterOf(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
): ProtocolAdapter {
  const { url = '/' } = request;
  // A target that two readers could read differently never belongs to the hub.
  const target = requestTarget(url) ?? { authority: null, target: url, spelled: url };
  if (isHttp2(request)) {
    const { stream, rawHeaders } = request;
    return new Http2Adapter({
      ...{ stream, rawHeaders, body: request, target },
      maxSentHeadBytes: NODE_SENT_HEAD_BYTES,
    });
  }
  // Request and response always come as a pair, which their types do not express.
  return new MountedHttp1Adapter(request, response as ServerResponse, target);
}

function isHttp2(request: IncomingMessage | Http2ServerRequest): request is Http2ServerRequest {
  return 'stream' in request;
}

/** A request that a foreign server has read with `node:http`. The connection stays with that server. */
class MountedHttp1Adapter extends RequestFacts<'1.0' | '1.1'> implements ProtocolAdapter {
  readonly hasBody: boolean;
  readonly body: Readable;
  readonly isBodyView = false;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;

  constructor(request: IncomingMessage, response: ServerResponse, target: RequestTarget) {
    const { httpVersionMinor, method = 'GET', rawHeaders } = request;
    const headers = HeaderList.fromRaw(rawHeaders);
    super(httpVersionMinor === 0 ? '1.0' : '1.1', method, headers, target, target.authority);
    this.#request = request;
    this.body = request;
    this.#response = response;
    this.hasBody =
      headers.has('transfer-encoding') || Number(headers.get('content-length') ?? 0) > 0;
    // The disconnect of the client already reports a failed write. Without a listener, the error would end the
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

  prepare(): void {
    // The server decides whether it keeps the connection.
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

  stream(): ResponseStream | null {
    return null;
  }

  sendTrailers(trailers: HeaderList): void {
    if (!this.#response.chunkedEncoding) return;
    this.#response.addTrailers(
      [...trailers].map(([name, value]): [string, string] => [name, value]),
    );
  }

  breakOff(): void {
    resetIfUndelimited(this, this.#request.socket);
    this.#response.destroy();
  }

  discardRequest(): void {
    // The response no longer holds the connection, which waits for the rest of the request.
    this.#request.socket.destroy();
  }
}

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

/**
 * Sends a 1xx response before the head of `response` over HTTP/1.1. Names keep their case. Node's own
 * functions would drop most such responses, or their fields.
 */
function informHttp1(response: ServerResponse, status: number, headers: HeaderList): void {
  if (status === 100) {
    // Node closes the connection of a client that waits for 100 unless Node has sent the 100 itself.
    if (!hasSentContinue(response)) response.writeContinue();
    return;
  }
  if (response.writableLength > MAX_WAITING_FOR_INFORMATIONAL) return;
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`;
  for (const [name, value] of validFields(headers)) head += `${name}: ${value}\r\n`;
  writeAhead(response, `${head}\r\n`);
}
