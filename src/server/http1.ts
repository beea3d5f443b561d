import {
  createServer,
  type IncomingMessage,
  type Server,
  ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ServerOptions } from '../config/config.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf } from '../kernel/error.ts';
import type { UpgradeRequest } from '../http/exchange.ts';
import { handshakeOf, type RequestSink, forgetDeadline, onNoRequest } from './connection-policy.ts';
import { Http1Adapter, type LeaveConnection, leaveServer } from './http1-adapter.ts';
import {
  closeIdle,
  giveConnection,
  goOnReading,
  readInto,
  releaseParser,
  sharedListener,
  watchLimits,
} from './node-internals.ts';
import { peerOf } from './proxy-protocol.ts';
import { PipelinedRequests, StoppedParsers } from './pipelined-requests.ts';
import {
  lineOf,
  encodeRawQuery,
  packetOf,
  unparsedOf,
  hasUnknownMethod,
  judgeHttp1,
  MAX_FIELDS,
  type RequestTarget,
} from './strict-request.ts';
import { ServerExchange } from './server-exchange.ts';

/** How often the server checks for requests that take too long. */
const TIMEOUT_CHECK_MS = 1000;
/** Time that a refused client has to read the refusal before the connection is cut. */
const LINGER_MS = 2000;

/** HTTP/1.1 with one set of limits. Connections are passed to it. */
export class Http1 {
  readonly #server: Server;
  readonly #reception: RequestSink;
  readonly #clock: Clock;
  readonly #sockets = new Set<Socket>();
  /** The newest response of each connection. */
  readonly #responses = new WeakMap<Duplex, ServerResponse>();
  /**
   * Connections with a refusal. The meaning of further bytes is unknown, so nothing more is read (RFC 9112
   * §9.6).
   */
  readonly #refused = new WeakSet<Duplex>();
  readonly #pipelined = new PipelinedRequests();
  readonly #stopped = new StoppedParsers();
  #draining = false;

  constructor(limits: ServerOptions, reception: RequestSink, clock: Clock) {
    this.#reception = reception;
    this.#clock = clock;
    const { readHeaderMs, idleMs } = limits.timeouts;
    const server = createServer({
      maxHeaderSize: limits.maxHeaderSize,
      headersTimeout: readHeaderMs,
      // Bodies are limited by silence, not by their whole duration, because uploads can be long.
      requestTimeout: 0,
      keepAliveTimeout: idleMs,
      connectionsCheckingInterval: Math.min(TIMEOUT_CHECK_MS, readHeaderMs || TIMEOUT_CHECK_MS),
      insecureHTTPParser: false,
      // Node would respond and continue to read. Here, a request without Host is refused like other invalid
      // ones.
      requireHostHeader: false,
    });
    server.timeout = 0;
    // Node would silently drop the fields beyond the limit. With one more, the excess is noticed.
    server.maxHeadersCount = MAX_FIELDS + 1;
    // A client that waits for 100 gets it when a handler reads its body, not before.
    for (const event of ['request', 'checkContinue', 'checkExpectation']) {
      server.on(event, (request: IncomingMessage, response: ServerResponse) =>
        this.#take(request, response),
      );
    }
    server.on('upgrade', (request, socket, head) => this.#takeUpgrade(request, socket, head));
    server.on('connect', (_request, socket: Duplex) => this.#refuseInTurn(socket, 405));
    server.on('clientError', (error, socket) => this.#malformed(error, socket));
    watchLimits(server);
    this.#server = server;
  }

  accept(socket: Socket): void {
    onNoRequest(socket, () => this.#refuse(socket, 408));
    this.#sockets.add(socket);
    socket.on('close', this.#forget);
    giveConnection(this.#server, socket);
  }

  readonly #forget = sharedListener((socket) => void this.#sockets.delete(socket));

  /** Lets requests in progress finish, and closes each connection afterwards. */
  drain(): void {
    this.#draining = true;
    this.#server.keepAliveTimeout = 1;
    closeIdle(
      this.#server,
      [...this.#sockets].filter((socket) => !this.#responses.has(socket)),
    );
    // The head of the response in progress has promised to keep the connection. The connection is closed
    // nevertheless. Otherwise the next request would arrive when this gateway is gone.
    for (const socket of this.#sockets) {
      this.#unanswered(socket)?.once('finish', () => endWhenWritten(socket));
    }
  }

  /** Stops watching the limits. Called when the last connection is gone. */
  close(): void {
    this.#server.close();
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request;
    if (this.#refused.has(socket)) {
      this.#pipelined.end(socket);
      return;
    }
    forgetDeadline(socket);
    this.#pipelined.begin(socket, response);
    this.#responses.set(socket, response);
    if (this.#draining) response.shouldKeepAlive = false;
    const verdict = judgeHttp1(request);
    if (typeof verdict !== 'number') this.#deliver(request, response, verdict, null);
    else {
      // Through the response, so that earlier requests on the connection get their responses first.
      this.#refused.add(socket);
      response.shouldKeepAlive = false;
      response.writeHead(verdict, { 'content-length': '0' }).end();
    }
  }

  /**
   * An upgrade to a supported protocol is treated like any request; the connection changes its protocol only
   * when a handler takes it over. Other upgrades are ignored (RFC 9110 §7.8).
   */
  #takeUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    if (this.#refused.has(socket)) return;
    forgetDeadline(request.socket);
    // Node removes its error listener here. This listener is added once, however often a client asks.
    socket.off('error', destroyItself).on('error', destroyItself);
    if (this.#unanswered(socket) !== undefined) {
      // The protocol cannot change before the earlier responses have been sent.
      this.#refuseInTurn(socket, 400);
      return;
    }
    const verdict = hasStrayBody(request) ? 400 : judgeHttp1(request);
    if (typeof verdict === 'number') {
      this.#refuseInTurn(socket, verdict);
      return;
    }
    if (!asksForWebSocket(request)) {
      // Node stops reading the message after such a head, whether or not a body follows.
      socket.removeAllListeners('timeout');
      socket.unshift(Buffer.concat([withoutUpgrade(request), head]));
      this.#server.emit('connection', socket);
      return;
    }
    const response = new ServerResponse(request);
    response.shouldKeepAlive = false;
    // The socket of an HTTP/1.1 server is a net.Socket, although the type of the event does not declare it.
    response.assignSocket(socket as Socket);
    response.once('finish', () => socket.end());
    this.#deliver(request, response, verdict, {
      ...{ kind: 'http1', request, socket, head },
      release: () => response.detachSocket(request.socket),
      readInto: (reader) => readInto(request.socket, reader),
    });
  }

  #deliver(
    request: IncomingMessage,
    response: ServerResponse,
    target: RequestTarget,
    upgrade: UpgradeRequest | null,
  ): void {
    const { socket } = request;
    const settings = this.#reception.settings();
    if (settings === null) {
      socket.destroy();
      return;
    }
    const handshake = handshakeOf(socket);
    const connection = {
      secure: 'encrypted' in socket && socket.encrypted === true,
      tlsVersion: handshake?.tlsVersion ?? null,
      peer: peerOf(socket),
      upgrade,
    };
    const adapter = new Http1Adapter(
      request,
      response,
      target,
      upgrade === null ? this.#leave : null,
    );
    this.#reception.take(new ServerExchange(adapter, settings, connection), handshake);
  }

  /** Gives the connection to the newest response. No further request is accepted on it. */
  readonly #leave: LeaveConnection = (request, response) => {
    const { socket } = request;
    if (this.#responses.get(socket) !== response || this.#refused.has(socket)) return false;
    this.#refused.add(socket);
    // The map would keep the response, and with it the request, as long as the connection lives.
    this.#responses.delete(socket);
    return leaveServer(request, response);
  };

  /** RFC 9112 §2.2: a message that cannot be parsed is refused, and the connection closed. */
  #malformed(error: Error, socket: Duplex): void {
    if (this.#refused.has(socket)) return;
    if (codeOf(error) === 'HPE_PAUSED' && socket instanceof Socket) {
      this.#pipelined.stopped(socket, unparsedOf(error));
      return;
    }
    if (!socket.writable) {
      socket.destroy();
      return;
    }
    // More bytes for a stopped parser.
    if (this.#stopped.has(socket)) {
      if (!this.#stopped.add(socket, packetOf(error))) this.#refuseInTurn(socket, 400);
      return;
    }
    const status = statusOf(error);
    const latest = this.#unanswered(socket);
    const fixed = encodeRawQuery(error);
    // A client that has received its response can send the next request before the response counts as sent
    // here.
    const isGiven = latest?.req.complete === true && latest.writableEnded;
    if ((latest === undefined || isGiven) && socket instanceof Socket && fixed instanceof Buffer) {
      this.#parseAgain(socket, fixed, latest);
      return;
    }
    if (latest === undefined || latest.req.complete) {
      this.#refuseInTurn(socket, status, typeof fixed === 'string' ? fixed : '');
      return;
    }
    // The request that is being answered is itself the malformed one.
    if (latest.headersSent) socket.destroy();
    else this.#refuse(socket, status);
  }

  /**
   * Gives a connection a new parser, which begins with these bytes.
   *
   * @param latest the response that is still being sent; undefined if there is none
   */
  #parseAgain(socket: Socket, bytes: Buffer, latest: ServerResponse | undefined): void {
    this.#stopped.begin(socket, bytes);
    socket.pause();
    const again = (): void => {
      const all = this.#stopped.take(socket);
      if (all === null || !releaseParser(socket)) return;
      this.#pipelined.forget(socket);
      socket.unshift(all);
      giveConnection(this.#server, socket);
      socket.resume();
    };
    // The old parser is still running here.
    if (latest === undefined) setImmediate(again);
    else latest.once('close', () => setImmediate(again));
  }

  #unanswered(socket: Duplex): ServerResponse | undefined {
    const latest = this.#responses.get(socket);
    return latest?.writableFinished === false ? latest : undefined;
  }

  /** Refuses after the responses to the earlier valid requests. */
  #refuseInTurn(socket: Duplex, status: number, reason = ''): void {
    if (this.#refused.has(socket)) return;
    this.#refused.add(socket);
    const latest = this.#unanswered(socket);
    if (latest === undefined) this.#refuse(socket, status, reason);
    else {
      latest.once('close', () => {
        if (socket.writable) this.#refuse(socket, status, reason);
      });
    }
  }

  /** Sends a refusal, which is the last response of the connection. */
  #refuse(socket: Duplex, status: number, reason = ''): void {
    this.#refused.add(socket);
    const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close`;
    socket.end(`${head}\r\nContent-Length: ${reason.length}\r\n\r\n${reason}`);
    // If it were closed while bytes arrive, it would be reset, and the client might never read the refusal
    // (RFC 9112 §9.6).
    if (socket instanceof Socket) goOnReading(socket);
    socket.resume();
    const cancel = this.#clock.after(LINGER_MS, () => socket.destroy());
    socket.once('close', cancel);
  }
}

function destroyItself(this: Duplex): void {
  this.destroy();
}

/** An orderly close that does not wait for the client's own. */
function endWhenWritten(socket: Duplex): void {
  if (socket instanceof Socket) socket.destroySoon();
  else socket.end();
}

/** Whether a WebSocket handshake announces content, which different implementations read differently. */
function hasStrayBody(request: IncomingMessage): boolean {
  const { headers } = request;
  const hasBody =
    headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
  return hasBody && asksForWebSocket(request);
}

function statusOf(error: Error): number {
  switch (codeOf(error)) {
    case 'HPE_HEADER_OVERFLOW':
      return 431;
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return 413;
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return 408;
    case 'HPE_INVALID_METHOD':
      return hasUnknownMethod(lineOf(error)) ? 501 : 400;
    default:
      return 400;
  }
}

/** Fields that only matter to an upgrade. The second one belongs to the HTTP/2 upgrade (RFC 7540 §3.2.1). */
const UPGRADE_FIELDS = new Set(['upgrade', 'http2-settings']);

/** Whether a request asks for the one supported protocol besides HTTP (RFC 6455 §4.1). */
function asksForWebSocket({ method, httpVersion, headers }: IncomingMessage): boolean {
  return (
    method === 'GET' && httpVersion === '1.1' && headers.upgrade?.toLowerCase() === 'websocket'
  );
}

/** The original head of a request, without the fields of the upgrade. */
function withoutUpgrade({ method, url, httpVersion, rawHeaders }: IncomingMessage): Buffer {
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    if (!UPGRADE_FIELDS.has(name.toLowerCase())) lines.push(`${name}: ${rawHeaders[i + 1]}`);
  }
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
}
