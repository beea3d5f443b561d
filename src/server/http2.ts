import {
  createServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  constants,
} from 'node:http2';
import type { Socket } from 'node:net';
import type { ServerOptions } from '../config/config.ts';
import { closeAnswered } from '../http/body-end.ts';
import type { UpgradeRequest } from '../http/exchange.ts';
import { SessionPieces } from '../http/small-pieces.ts';
import { BegunRequests } from './pipelined-requests.ts';
import type { Clock } from '../kernel/clock.ts';
import { MAX_SENT_HEAD_BYTES, NO_MEMORY_LIMIT_MB } from '../http/http2-fields.ts';
import { messageOf, HubgateError } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import {
  type Handshake,
  handshakeOf,
  type RequestSink,
  forgetDeadline,
  onNoRequest,
} from './connection-policy.ts';
import { Http2Adapter } from './http2-adapter.ts';
import { ServerExchange } from './server-exchange.ts';
import { guardSession } from './http2-guards.ts';
import { giveConnection } from '../kernel/node-internals.ts';
import { RecentObjects } from '../kernel/v8-memory.ts';
import { type Peer, peerOf } from './proxy-protocol.ts';
import { judgeHttp2, MAX_FIELDS, reasonFor, type RequestHead } from './strict-request.ts';

// Node returns the connection's flow-control window as soon as bytes arrive, so only the windows of the
// streams bound the waiting data. They are wide until too much data waits in total, which is counted here.

/**
 * Bytes of one request's body that may be in transit or wait for the reader (RFC 9113 §6.9): enough for 20 MB
 * a second over 50 ms. A narrow window has the protocol's default size.
 */
export const WIDE_WINDOW_BYTES = 1024 * 1024;
export const NARROW_WINDOW_BYTES = 65_535;
/** Bytes of all bodies of a connection that may be in transit. Node does not count those that wait here. */
export const CONNECTION_WINDOW_BYTES = 4 * 1024 * 1024;

/** Bytes that wait for upstreams, of one connection or of all. At this limit, windows become narrow. */
export const MAX_WAITING_OF_CONNECTION = 4 * 1024 * 1024;
const MAX_WAITING_IN_TOTAL = 64 * 1024 * 1024;
/** Windows become wide again when at most this fraction of the limit waits. */
const WIDE_AGAIN = 1 / 4;
/**
 * Waiting bytes at which a connection is closed. A client that respects its narrow windows can never reach
 * it: 250 requests with 64 KiB each, and what was in transit before.
 */
export const MAX_UNHEEDED_OF_CONNECTION = 32 * 1024 * 1024;

/**
 * The flow-control windows of clients for their uploads over HTTP/2. Bodies that upstreams read slowly wait
 * here, and Node bounds each of them only by its window. So windows become narrow when too much waits.
 */
class UploadWindows {
  #total = 0;
  readonly #narrow = new Set<ConnectionWindows>();

  watch(session: ServerHttp2Session): void {
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    const windows = new ConnectionWindows(session);
    if (this.#total > MAX_WAITING_IN_TOTAL) this.#setNarrow(windows);
    session.once('close', () => this.#narrow.delete(windows));
    session.on('stream', (stream: ServerHttp2Stream) => {
      if (!stream.endAfterHeaders) this.#count(stream, windows);
    });
  }

  /** Counts all bytes that are pushed into a body, because Node emits events only while something reads. */
  #count(stream: ServerHttp2Stream, windows: ConnectionWindows): void {
    let known = 0;
    const note = (waiting: number): void => {
      const more = waiting - known;
      known = waiting;
      if (more === 0) return;
      windows.waiting += more;
      this.#total += more;
      this.#adjust(windows);
    };
    const push = stream.push.bind(stream);
    stream.push = (chunk, encoding) => {
      const goesOn = push(chunk, encoding);
      windows.pieces.add();
      note(stream.readableLength);
      return goesOn;
    };
    stream.once('close', () => note(0));
  }

  #adjust(windows: ConnectionWindows): void {
    const { waiting } = windows;
    if (waiting > MAX_UNHEEDED_OF_CONNECTION) {
      windows.refuse();
    } else if (waiting > MAX_WAITING_OF_CONNECTION || this.#total > MAX_WAITING_IN_TOTAL) {
      this.#setNarrow(windows);
    } else if (this.#total <= MAX_WAITING_IN_TOTAL * WIDE_AGAIN) {
      for (const one of this.#narrow) {
        if (one.waiting > MAX_WAITING_OF_CONNECTION * WIDE_AGAIN) continue;
        this.#narrow.delete(one);
        one.announce(WIDE_WINDOW_BYTES);
      }
    }
  }

  #setNarrow(windows: ConnectionWindows): void {
    if (this.#narrow.has(windows)) return;
    this.#narrow.add(windows);
    windows.announce(NARROW_WINDOW_BYTES);
  }
}

class ConnectionWindows {
  /** Bytes that wait. */
  waiting = 0;
  readonly pieces: SessionPieces;
  readonly #session: ServerHttp2Session;

  constructor(session: ServerHttp2Session) {
    this.#session = session;
    this.pieces = new SessionPieces(session);
  }

  /**
   * Sets the window of future streams, and changes that of existing ones by the difference (RFC 9113 §6.9.2).
   */
  announce(initialWindowSize: number): void {
    if (!this.#session.destroyed) this.#session.settings({ initialWindowSize });
  }

  refuse(): void {
    if (this.#session.destroyed) return;
    const error = new HubgateError('http2-refused', 'The client sent more than its windows allow');
    this.#session.destroy(error, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}

/** Concurrent streams of one connection. */
const MAX_CONCURRENT_STREAMS = 250;
/** Invalid frames and streams before a connection is closed. */
const MAX_FAULTS = 100;

/** Upload windows of all connections of this process. */
const uploadWindows = new UploadWindows();

/** Without one, V8 drops the compiled code of Node's sessions and streams in each pause (docs/performance.md). */
const recentSessions = new RecentObjects();

/** HTTP/2 with one set of limits. Connections are passed to it. */
export class Http2 {
  readonly #limits: ServerOptions;
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #begun = new BegunRequests();
  /** The socket of the session that is being created. The session itself shows only a proxy of it. */
  #accepting: Socket | null = null;
  readonly #sink: RequestSink;
  readonly #clock: Clock;
  readonly #log: Logger;

  constructor(limits: ServerOptions, sink: RequestSink, clock: Clock, log: Logger) {
    this.#limits = limits;
    this.#sink = sink;
    this.#clock = clock;
    this.#log = log;
    const server = createServer({
      maxSessionInvalidFrames: MAX_FAULTS,
      maxSessionRejectedStreams: MAX_FAULTS,
      maxHeaderListPairs: MAX_FIELDS,
      maxSessionMemory: NO_MEMORY_LIMIT_MB,
      maxSendHeaderBlockLength: MAX_SENT_HEAD_BYTES,
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
    for (const session of this.#sessions) {
      if (session.destroyed) continue;
      session.goaway();
      session.close();
    }
  }

  #watch(session: ServerHttp2Session): void {
    this.#sessions.add(session);
    recentSessions.keep(session);
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
    const verdict = judgeHttp2(head, rawHeaders);
    const isTunnel = isConnect && upgrade === null;
    const target = isTunnel && typeof verdict !== 'number' ? 501 : verdict;
    if (typeof target === 'number') return refuse(stream, target, reasonFor(head));
    const settings = this.#sink.settings();
    if (settings === null) {
      stream.session?.destroy();
      return;
    }
    const adapter = new Http2Adapter({
      ...{ stream, rawHeaders, body: stream, target },
      maxSentHeadBytes: MAX_SENT_HEAD_BYTES,
    });
    const connection = { secure, tlsVersion: handshake?.tlsVersion ?? null, peer, upgrade };
    this.#begun.begin(stream.session ?? stream, () => {
      if (stream.destroyed || stream.closed) return;
      this.#sink.take(new ServerExchange(adapter, settings, connection), handshake);
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
  return { httpVersion: '2.0', method, url, protocol };
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
