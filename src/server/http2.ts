import {
  createServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import type { ServerOptions } from '../config/config.ts';
import { closeAnswered } from '../http/body-end.ts';
import type { UpgradeRequest } from '../http/exchange.ts';
import { BegunRequests } from './pipelined-requests.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { type Handshake, handshakeOf } from './connection-policy.ts';
import { forgetDeadline, onNoRequest } from './first-request.ts';
import { Http2Adapter } from './http2-adapter.ts';
import { ServerExchange } from './server-exchange.ts';
import { guardSession } from './http2-guards.ts';
import { giveConnection } from './node-internals.ts';
import { type Peer, peerOf } from './peers.ts';
import type { RequestSink } from './exchange-settings.ts';
import { UploadWindows, WIDE_WINDOW_BYTES } from './upload-windows.ts';
import { judgeHttp2, MAX_FIELDS, reasonFor, type RequestHead } from './strict-request.ts';

/** Concurrent streams of one connection. */
const MAX_CONCURRENT_STREAMS = 250;
/** Invalid frames and streams before a connection is closed. */
const MAX_FAULTS = 100;

/** Upload windows of all connections of this process. */
const uploadWindows = new UploadWindows();

/** HTTP/2 with one set of limits. Connections are passed to it. */
export class Http2 {
  readonly #limits: ServerOptions;
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #begun = new BegunRequests();
  /** The socket of the session that is being created. The session itself shows only a proxy of it. */
  #accepting: Socket | null = null;
  readonly #reception: RequestSink;
  readonly #clock: Clock;
  readonly #log: Logger;

  constructor(limits: ServerOptions, reception: RequestSink, clock: Clock, log: Logger) {
    this.#limits = limits;
    this.#reception = reception;
    this.#clock = clock;
    this.#log = log;
    const server = createServer({
      maxSessionInvalidFrames: MAX_FAULTS,
      maxSessionRejectedStreams: MAX_FAULTS,
      maxHeaderListPairs: MAX_FIELDS,
      settings: {
        maxConcurrentStreams: MAX_CONCURRENT_STREAMS,
        maxHeaderListSize: limits.maxHeaderSize,
        initialWindowSize: WIDE_WINDOW_BYTES,
        // RFC 8441: WebSockets over HTTP/2.
        enableConnectProtocol: true,
      },
    });
    server.on('session', (session) => this.#watch(session));
    server.on('sessionError', (error) => this.#failed('An HTTP/2 connection failed', error));
    this.#server = server;
  }

  accept(socket: Socket): void {
    this.#accepting = socket;
    giveConnection(this.#server, socket);
    this.#accepting = null;
  }

  /** Asks clients to leave (GOAWAY) when requests in progress have finished. */
  drain(): void {
    for (const session of this.#sessions) session.close();
  }

  #watch(session: ServerHttp2Session): void {
    this.#sessions.add(session);
    session.once('close', () => this.#sessions.delete(session));
    uploadWindows.watch(session);
    const socket = this.#accepting;
    guardSession(session, { idleMs: this.#limits.timeouts.idleMs, socket, clock: this.#clock });
    if (socket === null) return;
    onNoRequest(socket, () => session.close());
    session.once('stream', () => forgetDeadline(socket));
    const carrier: Carrier = {
      secure: session.encrypted === true,
      peer: peerOf(socket),
      handshake: handshakeOf(socket),
    };
    // Node passes the fields in their original order in addition to the record of them.
    session.on(
      'stream',
      (stream: ServerHttp2Stream, _record: unknown, _flags: unknown, raw: readonly string[]) => {
        stream.on('error', this.#onStreamError);
        this.#take(stream, raw, carrier);
      },
    );
  }

  #take(
    stream: ServerHttp2Stream,
    rawHeaders: readonly string[],
    { secure, peer, handshake }: Carrier,
  ): void {
    const head = requestHead(rawHeaders);
    const isConnect = head.method === 'CONNECT';
    const upgrade = isConnect ? tunnelOf(head, stream) : null;
    const verdict = judgeHttp2(head);
    const isTunnel = isConnect && upgrade === null;
    const target = isTunnel && typeof verdict !== 'number' ? 405 : verdict;
    if (typeof target === 'number') {
      refuse(stream, target, reasonFor(head));
      return;
    }
    const settings = this.#reception.settings();
    if (settings === null) {
      stream.session?.destroy();
      return;
    }
    const adapter = new Http2Adapter({ stream, rawHeaders, body: stream, target });
    const connection = { secure, tlsVersion: handshake?.tlsVersion ?? null, peer, upgrade };
    this.#begun.begin(stream.session ?? stream, () => {
      if (stream.destroyed || stream.closed) return;
      this.#reception.take(new ServerExchange(adapter, settings, connection), handshake);
    });
  }

  readonly #onStreamError = (error: Error): void => {
    this.#failed('An HTTP/2 stream failed', error);
  };

  #failed(message: string, error: Error): void {
    this.#log.debug(message, { error: messageOf(error) });
  }
}

/** The constant properties of a connection. */
interface Carrier {
  readonly secure: boolean;
  readonly peer: Peer;
  readonly handshake: Handshake | null;
}

interface Http2RequestHead extends RequestHead {
  readonly protocol: string | undefined;
}

function requestHead(rawHeaders: readonly string[]): Http2RequestHead {
  let method: string | undefined;
  let url: string | undefined;
  let protocol: string | undefined;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i];
    if (name?.startsWith(':') !== true) continue;
    if (name === ':method') method = rawHeaders[i + 1];
    else if (name === ':path') url = rawHeaders[i + 1];
    else if (name === ':protocol') protocol = rawHeaders[i + 1];
  }
  return { httpVersion: '2.0', method, url, protocol, rawHeaders };
}

/** An extended CONNECT (RFC 8441 §4); null for a request for a TCP tunnel. */
function tunnelOf(
  { protocol }: Http2RequestHead,
  stream: ServerHttp2Stream,
): UpgradeRequest | null {
  return protocol === undefined ? null : { kind: 'http2', protocol, stream };
}

function refuse(stream: ServerHttp2Stream, status: number, reason = ''): void {
  if (stream.destroyed || stream.closed) return;
  const isEmpty = reason === '';
  const head = { ':status': status, 'content-length': String(reason.length) };
  stream.respond(head, { endStream: isEmpty });
  if (isEmpty) closeAnswered(stream);
  else stream.end(reason, () => closeAnswered(stream));
}
