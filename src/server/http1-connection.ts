// A connection of HTTP/1.1 reads one message after another and sends the responses in the same order. How many
// requests may wait for their responses is bounded, and so is how many begin in one turn of the event loop. What
// cannot be understood is refused after the responses to the requests before it, and nothing behind it is read
// (RFC 9112 §9.6).

import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { PausedProbe } from '../http/disconnect-signal.ts';
import type { UpgradeRequest } from '../http/exchange.ts';
import { isSafeMethod } from '../http/field-values.ts';
import { badSyntax } from '../http/http1-syntax.ts';
import { MAX_PIECES_OF_TURN, restReading } from '../http/small-pieces.ts';
import { type Clock, LONGEST_TIMER_MS } from '../kernel/clock.ts';
import {
  type ExchangeConnection,
  forgetDeadline,
  type Handshake,
  handshakeOf,
  linger,
  refuseConnection,
  onNoRequest,
  type RequestSink,
} from './connection-policy.ts';
import { type ExchangeCarrier, Http1Adapter } from './http1-adapter.ts';
import { PartialHead, readHead, statusOf } from './http1-head.ts';
import type { Http1RequestBody } from './http1-request-body.ts';
import { readInto } from '../kernel/node-internals.ts';
import { MAX_BEGUN, MAX_PIPELINED, RESUMED_PIPELINED, type Turns } from './pipelined-requests.ts';
import { peerOf } from './proxy-protocol.ts';
import { ServerExchange } from './server-exchange.ts';
import { judgeHttp1, reasonFor } from './strict-request.ts';

/** Empty lines before a request line, which some old clients send after a body (RFC 9112 §2.2). */
const MAX_EMPTY_LINES = 8;
/**
 * Bytes of responses that wait for the client or for their turn, and of bodies that wait for their readers, before no
 * further request begins.
 */
const MAX_WAITING_BYTES = 64 * 1024;

const CR = 13;
const LF = 10;
const NOTHING = Buffer.alloc(0);
const HEAD_END = Buffer.from('\r\n\r\n');

/** What the connections of a server share. */
export interface Http1Settings {
  readonly maxHeaderSize: number;
  /** 0 for no limit. */
  readonly readHeaderMs: number;
  /** 0 for no limit. */
  readonly idleMs: number;
  readonly sink: RequestSink;
  readonly clock: Clock;
  readonly turns: Turns;
  /** Connections close after the response in progress. */
  isDraining: boolean;
  /** Called when a connection has closed, or left its socket to another protocol or to one response. */
  readonly onEnd: (connection: Http1Connection) => void;
}

/** One connection of a client. */
export class Http1Connection implements ExchangeCarrier {
  readonly #socket: Socket & Carrier;
  readonly #settings: Http1Settings;
  readonly #handshake: Handshake | null;
  /** What the exchanges of ordinary requests need to know. */
  readonly #plain: ExchangeConnection;
  /** Requests whose responses have not been sent completely, the oldest first. */
  readonly #unsent: Http1Adapter[] = [];
  /** The body that is being read. */
  #body: Http1RequestBody | null = null;
  readonly #partial = new PartialHead();
  #emptyLines = 0;
  /** What has been read but may not be parsed yet. */
  #held: Buffer = NOTHING;
  #isHeld = false;
  #isResuming = false;
  /** No further request is read. */
  #isOver = false;
  /** Sent when the responses to earlier requests have been sent. */
  #refusal: { readonly status: number; readonly reason: string } | null = null;
  #hasAsked = false;
  #isParsing = false;
  /** The turn in which requests were last begun, and their number. */
  #turn = -1;
  #begun = 0;
  #stopHeadLimit: (() => void) | null = null;
  /** Of a connection that was paused at least once. */
  #pausedProbe: PausedProbe | null = null;

  constructor(socket: Socket & Carrier, settings: Http1Settings) {
    this.#socket = socket;
    this.#settings = settings;
    this.#handshake = handshakeOf(socket);
    this.#plain = {
      secure: 'encrypted' in socket && socket.encrypted === true,
      tlsVersion: this.#handshake?.tlsVersion ?? null,
      peer: peerOf(socket),
      upgrade: null,
    };
    socket[CONNECTION] = this;
    onNoRequest(socket, () => this.#refuseInTurn(408));
    // What was read before arrives as `data`.
    readInto(socket, { buffer: READ_BUFFER, callback: onRead });
    socket.on('data', onData).on('close', onClose);
    // Not as the argument of `setTimeout`, which would call it only once.
    const idleMs = Math.min(settings.idleMs, LONGEST_TIMER_MS);
    socket.on('timeout', onTimeout).setTimeout(idleMs);
  }

  get isClosed(): boolean {
    return this.#socket.destroyed;
  }

  get idleMs(): number {
    return this.#settings.idleMs;
  }

  /** No request is in progress, and none has arrived, not even a part of its head. */
  get #isIdle(): boolean {
    return this.#unsent.length === 0 && this.#partial.length === 0 && !this.#isHeld;
  }

  get maxHeaderSize(): number {
    return this.#settings.maxHeaderSize;
  }

  /**
   * Closes an idle connection, and another one after the response in progress. What has arrived while the process was busy
   * is read before: closing a socket with unread data resets the connection, and the client does not know whether its
   * request was read. The first of the two turns may report only what had arrived before this call.
   */
  drain(): void {
    const closeIfIdle = (): void => {
      // A connection without any request may have one in transit.
      if (this.#isIdle && this.#hasAsked && !this.#isOver) this.#close();
    };
    setImmediate(() => setImmediate(closeIfIdle));
  }

  /** The client has sent something. The memory of the chunk is used again. */
  received(chunk: Buffer): void {
    if (this.#isOver) return;
    if (this.#isHeld) this.#hold(Buffer.concat([this.#held, chunk]));
    else if (this.#partial.length > 0) this.#parse(this.#partial.joined(chunk));
    else this.#parse(chunk);
  }

  /** The connection has closed. */
  closed(): void {
    this.#isOver = true;
    this.#stopHeadLimit?.();
    this.#pausedProbe?.stop();
    for (const exchange of this.#unsent.splice(0)) exchange.connectionClosed();
    // Its response may have been sent already.
    this.#body?.destroy();
    this.#body = null;
    this.#settings.onEnd(this);
  }

  /** Nothing was read or written for a while. */
  timedOut(): void {
    // The rest of a body may be missing: nobody waits for it after the response.
    if (this.#isIdle && this.#hasAsked && !this.#isOver) this.#socket.destroy();
  }

  wanted(): void {
    if (!this.#isParsing && !this.#isHeld && !this.#isOver) this.#socket.resume();
  }

  turnOf(exchange: Http1Adapter): Socket | null {
    return this.#unsent[0] === exchange ? this.#socket : null;
  }

  sent(exchange: Http1Adapter): void {
    if (this.#unsent[0] !== exchange) return;
    this.#unsent.shift();
    if (exchange.isLast || (this.#settings.isDraining && this.#isIdle)) return this.#close();
    exchange.dropBody();
    const next = this.#unsent[0];
    if (next !== undefined) next.beginTurn(this.#socket);
    else if (this.#refusal !== null) this.#sendRefusal(this.#refusal.status, this.#refusal.reason);
    if (this.#isHeld && this.#unsent.length <= RESUMED_PIPELINED) this.#parseLater();
  }

  mustWait(exchange: Http1Adapter): boolean {
    const at = this.#unsent.indexOf(exchange);
    return at > 0 && this.#unsent.slice(0, at + 1).some(({ method }) => !isSafeMethod(method));
  }

  closesAfter(exchange: Http1Adapter): boolean {
    if (!this.#settings.isDraining || this.#isHeld || this.#partial.length > 0) return false;
    return this.#unsent.at(-1) === exchange;
  }

  endRequests(): void {
    // The rest of a body is read first.
    if (this.#isOver || this.#body !== null) return;
    this.#isOver = true;
    this.#stopHeadLimit?.();
    if (!this.#isHeld) return;
    this.#isHeld = false;
    this.#held = NOTHING;
    this.#socket.resume();
  }

  destroy(): void {
    this.#isOver = true;
    this.#socket.destroy();
  }

  leave(exchange: Http1Adapter): boolean {
    if (this.isClosed || this.#refusal !== null) return false;
    if (this.#unsent.length > 1 || this.#unsent[0] !== exchange) return false;
    this.#detach();
    // Nothing reads what the client still sends. It is discarded, so that the end is noticed.
    this.#socket.resume();
    return true;
  }

  /** Gives the socket to another protocol, or to a response that has it to itself. */
  #detach(): void {
    this.#isOver = true;
    this.#stopHeadLimit?.();
    this.#pausedProbe?.stop();
    this.#unsent.length = 0;
    this.#body = null;
    this.#partial.release();
    const socket = this.#socket;
    socket[CONNECTION] = undefined;
    this.#settings.onEnd(this);
    socket.off('data', onData).off('close', onClose).off('timeout', onTimeout);
    socket.setTimeout(0);
  }

  /** An orderly close, which waits for the client's own only if the client may still be sending. */
  #close(): void {
    this.#isOver = true;
    for (const exchange of this.#unsent.splice(0)) exchange.connectionClosed();
    const isRead = this.#body === null && this.#socket[CONNECTION] === this;
    if (isRead) this.#socket.destroySoon();
    else linger(this.#socket, this.#settings.clock);
  }

  #parse(bytes: Buffer): void {
    this.#isParsing = true;
    const known = this.#partial.taken();
    try {
      this.#parseAll(bytes, known);
    } catch (error) {
      this.#refuseInTurn(statusOf(error));
    }
    this.#isParsing = false;
    const socket = this.#socket;
    const body = this.#body;
    // What is held, and a connection that may change its protocol, stay paused.
    if (this.#isHeld || socket[CONNECTION] !== this) return;
    if (body !== null && !body.isWanted) this.#pause();
    // Also after the last request, so that the disconnect of the client is noticed.
    else if (socket.isPaused()) socket.resume();
  }

  /** @param known bytes at the beginning in which no head ends */
  #parseAll(bytes: Buffer, known: number): void {
    let at = 0;
    let searched = known;
    while (at < bytes.length && !this.#isOver) {
      if (this.#body !== null) {
        at = this.#readBody(this.#body, bytes, at);
        continue;
      }
      if (this.#isFull()) return this.#hold(Buffer.from(bytes.subarray(at)));
      if (this.#isTurnOver()) {
        this.#hold(Buffer.from(bytes.subarray(at)));
        this.#parseLater();
        return;
      }
      if (bytes[at] === CR && bytes[at + 1] === LF) {
        this.#emptyLines += 1;
        if (this.#emptyLines > MAX_EMPTY_LINES) throw badSyntax('Too many empty lines');
        at += 2;
        continue;
      }
      const end = bytes.indexOf(HEAD_END, Math.max(at, searched - HEAD_END.length + 1));
      if (end === -1 || end - at + HEAD_END.length > this.#settings.maxHeaderSize) {
        return this.#keepPartial(bytes, at, searched);
      }
      searched = 0;
      this.#emptyLines = 0;
      // The bytes may be a view of this memory, so that the next partial head must not reuse it.
      this.#partial.release();
      const rest = end + HEAD_END.length;
      this.#takeHead(bytes.toString('latin1', at, rest), bytes, rest);
      at = rest;
    }
  }

  #readBody(body: Http1RequestBody, bytes: Buffer, start: number): number {
    try {
      const at = body.receive(bytes, start);
      if (body.piecesOfRead >= MAX_PIECES_OF_TURN) restReading(this.#socket);
      if (body.isComplete) this.#endMessage();
      return at;
    } catch (error) {
      this.#body = null;
      // Also if only its trailer section is malformed, so that the body counts as complete.
      body.destroy();
      // The request itself is malformed, so it is not answered.
      const exchange = this.#unsent.pop();
      exchange?.connectionClosed();
      if (exchange?.hasBegun === true && this.#unsent.length === 0) this.#socket.destroy();
      throw error;
    }
  }

  /** A message has been read completely. */
  #endMessage(): void {
    this.#body = null;
    for (const exchange of this.#unsent) if (exchange.isLast) this.#isOver = true;
  }

  /** Whether the next request has to wait until a response has been sent. */
  #isFull(): boolean {
    if (this.#unsent.length === 0) return false;
    if (this.#unsent.length > MAX_PIPELINED) return true;
    let bytes = this.#socket.writableLength;
    for (const exchange of this.#unsent) bytes += exchange.waitingBytes;
    return bytes > MAX_WAITING_BYTES;
  }

  /** Whether the next request has to wait for the next turn of the event loop. */
  #isTurnOver(): boolean {
    const turn = this.#settings.turns.now();
    if (this.#turn !== turn) {
      this.#turn = turn;
      this.#begun = 0;
    }
    return this.#begun >= MAX_BEGUN;
  }

  #hold(bytes: Buffer): void {
    this.#held = bytes;
    if (this.#isHeld) return;
    this.#isHeld = true;
    this.#pause();
    // It is not the client that delays the end of a head.
    this.#stopHeadLimit?.();
    this.#stopHeadLimit = null;
  }

  #pause(): void {
    this.#socket.pause();
    this.#pausedProbe ??= new PausedProbe(this.#socket, this.#settings.clock);
    this.#pausedProbe.start();
  }

  #parseLater(): void {
    if (this.#isResuming) return;
    this.#isResuming = true;
    setImmediate(() => {
      this.#isResuming = false;
      if (!this.#isHeld || this.#isOver) return;
      const bytes = this.#held;
      this.#held = NOTHING;
      this.#isHeld = false;
      this.#parse(bytes);
    });
  }

  /** Keeps a head that has not arrived completely, unless it is already clear that it is refused. */
  #keepPartial(bytes: Buffer, at: number, known: number): void {
    if (bytes.length - at > this.#settings.maxHeaderSize) return this.#refuseInTurn(431);
    this.#partial.keep(bytes, at, known);
    const { readHeaderMs, clock } = this.#settings;
    if (!this.#hasAsked || readHeaderMs === 0 || this.#stopHeadLimit !== null) return;
    this.#stopHeadLimit = clock.after(readHeaderMs, () => this.#refuseInTurn(408));
  }

  /** @throws HubgateError `bad-http1-syntax`, `unknown-http1-method`, `unsupported-http-version` */
  #takeHead(text: string, bytes: Buffer, rest: number): void {
    this.#stopHeadLimit?.();
    this.#stopHeadLimit = null;
    const head = readHead(text);
    if (!this.#hasAsked) forgetDeadline(this.#socket);
    this.#hasAsked = true;
    this.#begun += 1;
    const target = head.method === 'CONNECT' ? 501 : judgeHttp1(head);
    if (typeof target === 'number') {
      const hasReason = target === 400 && head.method !== 'HEAD';
      return this.#refuseInTurn(target, hasReason ? reasonFor(head) : '');
    }
    const settings = this.#settings.sink.settings();
    if (settings === null) {
      this.#socket.destroy();
      return;
    }
    const exchange = new Http1Adapter(this, head, target);
    if (this.#settings.isDraining) exchange.endsConnection();
    if (exchange.wantsWebSocket) {
      // The protocol cannot change before the earlier responses have been sent, and different implementations
      // read a handshake with content differently.
      if (this.#unsent.length > 0 || exchange.hasBody) return this.#refuseInTurn(400);
      this.#unsent.push(exchange);
      this.#upgrade(exchange, bytes.subarray(rest));
      return;
    }
    this.#unsent.push(exchange);
    this.#body = exchange.bodyToRead;
    if (this.#body === null) this.#endMessage();
    this.#deliver(exchange, null);
  }

  /** The connection changes its protocol only when a handler takes it over. */
  #upgrade(exchange: Http1Adapter, early: Buffer): void {
    const socket = this.#socket;
    this.#isOver = true;
    exchange.endsConnection();
    const onGone = (): void => this.closed();
    socket[CONNECTION] = undefined;
    socket.off('data', onData).off('timeout', onTimeout).off('close', onClose);
    socket.once('close', onGone).setTimeout(0);
    // Its bytes wait for their reader. The socket's own `pause` would also stop reading, and nobody would notice that
    // the client leaves.
    socket.resume();
    Readable.prototype.pause.call(socket);
    this.#deliver(exchange, {
      kind: 'http1',
      socket,
      head: Buffer.from(early),
      release: () => {
        socket.off('close', onGone);
        this.#detach();
      },
      readInto: (reader) => readInto(socket, reader),
    });
  }

  #deliver(exchange: Http1Adapter, upgrade: UpgradeRequest | null): void {
    const { sink } = this.#settings;
    const settings = sink.settings();
    if (settings === null) return;
    const connection = upgrade === null ? this.#plain : { ...this.#plain, upgrade };
    sink.take(new ServerExchange(exchange, settings, connection), this.#handshake);
  }

  /** Refuses after the responses to the earlier requests. */
  #refuseInTurn(status: number, reason = ''): void {
    if (this.#isOver || this.#socket.destroyed) return;
    this.#isOver = true;
    this.#stopHeadLimit?.();
    if (this.#unsent.length === 0) this.#sendRefusal(status, reason);
    else this.#refusal = { status, reason };
  }

  /** Sends a refusal, which is the last response of the connection. */
  #sendRefusal(status: number, reason: string): void {
    refuseConnection(this.#socket, this.#settings.clock, status, reason);
  }
}

/** All connections read into the same memory, because Node would allocate 64 KiB for each read. */
const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024);

/** Shared functions find the connection of a socket here, so it needs no functions of its own. */
const CONNECTION = Symbol('connection of this socket');

interface Carrier {
  [CONNECTION]?: Http1Connection | undefined;
}

function onRead(this: unknown, bytes: number): boolean {
  const socket = this as Socket & Carrier;
  const connection = socket[CONNECTION];
  const chunk = READ_BUFFER.subarray(0, bytes);
  // After an upgrade, the connection is an ordinary stream.
  if (connection === undefined) return socket.push(Buffer.from(chunk));
  connection.received(chunk);
  return true;
}

function onData(this: Socket & Carrier, chunk: Buffer): void {
  this[CONNECTION]?.received(chunk);
}

function onClose(this: Socket & Carrier): void {
  this[CONNECTION]?.closed();
}

function onTimeout(this: Socket & Carrier): void {
  this[CONNECTION]?.timedOut();
}
