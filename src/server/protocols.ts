import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server as HttpServer,
  ServerResponse,
} from 'node:http';
import {
  createServer as createHttp2Server,
  type Http2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ServerOptions } from '../config/config.ts';
import type { UpgradeRequest } from '../http/exchange.ts';
import type { NodeRequest, NodeResponse } from '../http/node-exchange.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';

/** Takes what either protocol has read. */
export type OnRequest = (
  request: NodeRequest,
  response: NodeResponse,
  upgrade: UpgradeRequest | null,
) => void;

/** Streams of one HTTP/2 connection at once. */
const MAX_CONCURRENT_STREAMS = 250;
/** Frames and streams that break the protocol before an HTTP/2 connection is ended. */
const MAX_HTTP2_FAULTS = 100;
/** How often the HTTP/1.1 server looks for requests that take too long. */
const TIMEOUT_CHECK_MS = 1000;

/** The two protocols with one set of limits, fed with connections that a listener has accepted. */
export class Protocols {
  readonly limits: ServerOptions;
  readonly #http1: HttpServer;
  readonly #http2: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #log: Logger;

  constructor(limits: ServerOptions, onRequest: OnRequest, log: Logger) {
    this.limits = limits;
    this.#log = log;
    this.#http1 = createHttp1(limits, onRequest);
    this.#http2 = this.#createHttp2(onRequest);
  }

  /** Speaks HTTP/1.1 on a connection. */
  acceptHttp1(socket: Socket): void {
    this.#http1.emit('connection', socket);
  }

  /** Speaks HTTP/2 on a connection whose TLS handshake has agreed on it. */
  acceptHttp2(socket: Socket): void {
    this.#http2.emit('connection', socket);
  }

  /** Lets what is in flight finish and closes each connection after it. */
  drain(): void {
    // The servers never listened themselves; for them this only ends keep-alive.
    this.#http1.keepAliveTimeout = 1;
    this.#http1.prependListener('request', (_request, response: ServerResponse) => {
      response.shouldKeepAlive = false;
    });
    this.#http1.closeIdleConnections();
    for (const session of this.#sessions) session.close();
  }

  #createHttp2(onRequest: OnRequest): Http2Server {
    const server = createHttp2Server({
      maxSessionInvalidFrames: MAX_HTTP2_FAULTS,
      maxSessionRejectedStreams: MAX_HTTP2_FAULTS,
      settings: {
        maxConcurrentStreams: MAX_CONCURRENT_STREAMS,
        maxHeaderListSize: this.limits.maxHeaderSize,
        // RFC 8441: WebSockets over HTTP/2.
        enableConnectProtocol: true,
      },
    });
    server.on('session', (session) => this.#watch(session));
    server.on('sessionError', (error) => this.#failed('An HTTP/2 connection failed', error));
    server.on('stream', (stream) => {
      stream.on('error', (error) => this.#failed('An HTTP/2 stream failed', error));
    });
    acceptRequests(server, onRequest);
    server.on('connect', (request: Http2ServerRequest, response: Http2ServerResponse) => {
      const protocol = request.headers[':protocol'];
      if (typeof protocol === 'string') {
        onRequest(request, response, { kind: 'http2', protocol, stream: response.stream });
      } else {
        response.stream.respond({ ':status': 405 }, { endStream: true });
      }
    });
    return server;
  }

  #watch(session: ServerHttp2Session): void {
    let streams = 0;
    this.#sessions.add(session);
    session.once('close', () => this.#sessions.delete(session));
    session.on('stream', (stream) => {
      streams += 1;
      stream.once('close', () => {
        streams -= 1;
      });
    });
    // Node counts silence; a session with an open stream may be silent for as long as it likes.
    session.setTimeout(this.limits.timeouts.idleMs, () => {
      if (streams === 0) session.close();
    });
  }

  #failed(message: string, error: Error): void {
    this.#log.debug(message, { error: messageOf(error) });
  }
}

function createHttp1(limits: ServerOptions, onRequest: OnRequest): HttpServer {
  const { readHeaderMs, idleMs } = limits.timeouts;
  const server = createHttpServer({
    maxHeaderSize: limits.maxHeaderSize,
    headersTimeout: readHeaderMs,
    // Bodies are bounded by silence, not by their whole duration: uploads may be long.
    requestTimeout: 0,
    keepAliveTimeout: idleMs,
    connectionsCheckingInterval: Math.min(TIMEOUT_CHECK_MS, readHeaderMs),
    insecureHTTPParser: false,
  });
  server.timeout = 0;
  acceptRequests(server, onRequest);
  server.on('upgrade', (request, socket, head) => acceptUpgrade(request, socket, head, onRequest));
  server.on('clientError', refuseMalformed);
  return server;
}

/** A client that waits for 100 gets it when somebody reads its body, not before. */
function acceptRequests(server: HttpServer | Http2Server, onRequest: OnRequest): void {
  for (const event of ['request', 'checkContinue']) {
    server.on(event, (request: NodeRequest, response: NodeResponse) => {
      onRequest(request, response, null);
    });
  }
}

/**
 * An upgrade is answered like any request: only a handler that takes it over speaks the other
 * protocol.
 */
function acceptUpgrade(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  onRequest: OnRequest,
): void {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  // The socket of an HTTP/1.1 server is a net.Socket, which the type of the event does not say.
  response.assignSocket(socket as Socket);
  response.once('finish', () => socket.end());
  socket.on('error', () => socket.destroy());
  onRequest(request, response, { kind: 'http1', request, socket, head });
}

/** RFC 9112 §2.2: what cannot be parsed is refused, and the connection closed. */
function refuseMalformed(error: Error, socket: Duplex): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  socket.end(`HTTP/1.1 ${refusalStatus(error)}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
}

function refusalStatus(error: Error): string {
  switch (codeOf(error)) {
    case 'HPE_HEADER_OVERFLOW':
      return '431 Request Header Fields Too Large';
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return '408 Request Timeout';
    default:
      return '400 Bad Request';
  }
}
