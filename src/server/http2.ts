import {
  constants,
  createServer,
  type Http2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from 'node:http2';
import type { Socket } from 'node:net';
import type { ServerOptions } from '../config/config.ts';
import type { UpgradeRequest } from '../http/exchange.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { guardSession } from './http2-guards.ts';
import type { OnRequest } from './on-request.ts';
import { MAX_FIELDS, refusalOfHttp2 } from './strict-request.ts';

/** Streams of one connection at once. */
const MAX_CONCURRENT_STREAMS = 250;
/** Frames and streams that break the protocol before a connection is ended. */
const MAX_FAULTS = 100;

/** HTTP/2 with one set of limits, fed with connections. */
export class Http2 {
  readonly #limits: ServerOptions;
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #onRequest: OnRequest;
  readonly #clock: Clock;
  readonly #log: Logger;

  constructor(limits: ServerOptions, onRequest: OnRequest, clock: Clock, log: Logger) {
    this.#limits = limits;
    this.#onRequest = onRequest;
    this.#clock = clock;
    this.#log = log;
    const server = createServer({
      maxSessionInvalidFrames: MAX_FAULTS,
      maxSessionRejectedStreams: MAX_FAULTS,
      maxHeaderListPairs: MAX_FIELDS,
      settings: {
        maxConcurrentStreams: MAX_CONCURRENT_STREAMS,
        maxHeaderListSize: limits.maxHeaderSize,
        // RFC 8441: WebSockets over HTTP/2.
        enableConnectProtocol: true,
      },
    });
    server.on('session', (session) => this.#watch(session));
    server.on('sessionError', (error) => this.#failed('An HTTP/2 connection failed', error));
    server.on('stream', (stream) => {
      stream.on('error', (error) => this.#failed('An HTTP/2 stream failed', error));
    });
    // A client that waits for 100 gets it when somebody reads its body, not before.
    for (const event of ['request', 'checkContinue', 'checkExpectation', 'connect']) {
      server.on(event, (request: Http2ServerRequest, response: Http2ServerResponse) =>
        this.#take(request, response),
      );
    }
    this.#server = server;
  }

  accept(socket: Socket): void {
    this.#server.emit('connection', socket);
  }

  /** Tells clients to go (GOAWAY) once what is in flight has finished. */
  drain(): void {
    for (const session of this.#sessions) session.close();
  }

  #take(request: Http2ServerRequest, response: Http2ServerResponse): void {
    const { stream } = response;
    const isConnect = request.method === 'CONNECT';
    const upgrade = isConnect ? tunnelOf(request, response) : null;
    const status = refusalOfHttp2(request) ?? (isConnect && upgrade === null ? 405 : null);
    if (status === null) {
      this.#onRequest(request, response, upgrade);
      return;
    }
    if (stream.destroyed || stream.closed) return;
    stream.respond({ ':status': status, 'content-length': '0' }, { endStream: true });
    // RFC 9113 §8.1: what more of the request comes is not wanted.
    stream.close(constants.NGHTTP2_NO_ERROR);
  }

  #watch(session: ServerHttp2Session): void {
    this.#sessions.add(session);
    session.once('close', () => this.#sessions.delete(session));
    guardSession(session, { idleMs: this.#limits.timeouts.idleMs, clock: this.#clock });
  }

  #failed(message: string, error: Error): void {
    this.#log.debug(message, { error: messageOf(error) });
  }
}

/** An extended CONNECT (RFC 8441 §4); null for one that asks for a TCP tunnel. */
function tunnelOf(
  { headers }: Http2ServerRequest,
  { stream }: Http2ServerResponse,
): UpgradeRequest | null {
  const protocol = headers[':protocol'];
  return typeof protocol === 'string' ? { kind: 'http2', protocol, stream } : null;
}
