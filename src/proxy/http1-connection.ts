// One connection to an upstream, with one exchange at a time. It reads responses (RFC 9112) straight out of the
// memory into which all connections read: the head becomes one text, and only the body is copied.

import { connect as connectPlain, type Socket } from 'node:net';
import { connect as connectTls, type SecureContext } from 'node:tls';
import { bufferPool, LEAST_POOLED_BYTES } from '../http/buffer-pool.ts';
import { HeaderList } from '../http/header-list.ts';
import { badSyntax, ChunkedReader, tooLarge } from '../http/http1-syntax.ts';
import type { Http1Writer } from '../http/http1-writer.ts';
import { MAX_PIECES_OF_TURN, restReading } from '../http/small-pieces.ts';
import { connectOptions } from './address.ts';
import { MAX_HEAD_BYTES, MAX_INFORMATIONAL } from './forwarding.ts';
import { type ReceivedHead, readResponseHead, refuseBadBeginning } from './http1-head.ts';
import { broken } from './request-lifecycle.ts';
import { type DialTarget, tlsOptions } from './upgrade-request.ts';
import { PiecesOfRead, upstreamReads, WRITE_BUFFER_BYTES } from './upstream-reads.ts';
import { gatherWrites, readAfterFailedWrites } from './upstream-writes.ts';
import { RecentObjects } from '../kernel/v8-memory.ts';

/** Bytes of a read that are converted to text first if no head ends in it. */
const PARTIAL_HEAD_BYTES = 512;
/** Silence after which the system probes whether the upstream is still there. */
const PROBE_DELAY_MS = 60_000;

const HEAD_END = '\r\n\r\n';
const HEAD_END_BYTES = Buffer.from(HEAD_END);

/** The exchange that a connection serves. None of its methods throws. */
export interface Http1Receiver {
  readonly method: string;
  /** Whether the connection can serve another exchange, from the view of the request. */
  readonly allowsReuse: boolean;
  /** The connection is ready for the request. */
  onReady(connection: Http1Connection): void;
  onInformation(status: number, headers: HeaderList): void;
  /** The response is complete; `body` is all of it. The connection may already serve another exchange. */
  onWhole(head: ReceivedHead, body: Buffer | null, trailers: HeaderList): void;
  onHead(head: ReceivedHead): void;
  onData(piece: Buffer): void;
  /** The response is complete. The connection may already serve another exchange. */
  onEnd(trailers: HeaderList): void;
  /** The connection accepts more of the request. */
  onDrain(): void;
  /** The connection has failed, and nothing more comes from it. */
  onFailure(error: Error): void;
}

/** The owner of connections. */
export interface Http1Owner {
  readonly target: DialTarget;
  /** The settings of TLS; null without TLS. */
  readonly secureContext: SecureContext | null;
  /** The last TLS session, which a new connection may resume. */
  session: Buffer | undefined;
  /**
   * The connection can serve another exchange.
   *
   * @param idleMs see {@link ReceivedHead.idleMs}
   */
  released(connection: Http1Connection, idleMs: number | null): void;
  closed(connection: Http1Connection): void;
}

const recent = new RecentObjects();

export class Http1Connection {
  /** The monotonic time until which it may wait for another exchange. */
  idleUntil = 0;
  readonly #owner: Http1Owner;
  readonly #socket: Socket;
  #receiver: Http1Receiver | null;
  /** What the next byte belongs to. */
  #part: 'head' | 'length' | 'chunks' | 'close' = 'head';
  /** The beginning of a head that has not arrived completely. */
  #text = '';
  #left = 0;
  #chunks: ChunkedReader | null = null;
  #isPersistent = true;
  #idleMs: number | null = null;
  #informational = 0;
  #isPaused = false;
  /** Whether anything of the request has been written. */
  #hasWritten = false;
  #error: Error | null = null;

  /** Connects to the upstream, for an exchange. */
  constructor(owner: Http1Owner, receiver: Http1Receiver) {
    recent.keep(this);
    this.#owner = owner;
    this.#receiver = receiver;
    const socket = this.#dial(owner);
    this.#socket = socket;
    readAfterFailedWrites(socket, (error) => {
      this.#error ??= error;
    });
    // Who waits for a response keeps the process alive, not the connection that it comes from.
    socket.unref();
    socket.on('error', (error) => {
      this.#error = error;
    });
    socket.once('end', () => this.#onEnd());
    socket.once('close', () => this.#onClose());
    socket.on('drain', () => this.#receiver?.onDrain());
  }

  #dial({ target, secureContext, session }: Http1Owner): Socket {
    const { address, settings } = target;
    const place = connectOptions(address, settings);
    const reading = upstreamReads.into((bytes, readBuffer) => this.#read(bytes, readBuffer));
    const ready = (): void => this.#receiver?.onReady(this);
    if (secureContext === null) {
      const socket = connectPlain({ ...place, ...reading, noDelay: true }, ready);
      socket.setKeepAlive(true, PROBE_DELAY_MS);
      gatherWrites(socket);
      return socket;
    }
    const options = {
      ...place,
      onread: reading.onread,
      highWaterMark: WRITE_BUFFER_BYTES,
      secureContext,
      servername: tlsOptions(target).servername,
      rejectUnauthorized: !settings.tlsInsecureSkipVerify,
      ALPNProtocols: ['http/1.1'],
      ...(session === undefined ? {} : { session }),
    };
    const socket = connectTls(options, ready);
    socket.setNoDelay(true).setKeepAlive(true, PROBE_DELAY_MS);
    socket.on('session', (next) => {
      this.#owner.session = next;
    });
    return socket;
  }

  get isUsable(): boolean {
    return !this.#socket.destroyed && this.#receiver === null;
  }

  /** Whether it has served an exchange before. */
  get isReused(): boolean {
    return this.idleUntil > 0;
  }

  /** Serves another exchange. */
  serve(receiver: Http1Receiver): void {
    this.#receiver = receiver;
    receiver.onReady(this);
  }

  /** Returns whether the connection accepts more at the moment. Text has one character per byte. */
  write(bytes: string | Buffer): boolean {
    this.#hasWritten = true;
    return typeof bytes === 'string'
      ? this.#socket.write(bytes, 'latin1')
      : this.#socket.write(bytes);
  }

  /** Writes a head, and returns the same as {@link write}. */
  send(head: Http1Writer): boolean {
    this.#hasWritten = true;
    return head.sendTo(this.#socket);
  }

  /** Writes a piece of a body, which nothing else may read afterwards, and returns the same as {@link write}. */
  pass(piece: Buffer): boolean {
    this.#hasWritten = true;
    return bufferPool.pass(piece, this.#socket);
  }

  /** What is written until {@link uncork} is sent together. */
  cork(): void {
    this.#socket.cork();
  }

  uncork(): void {
    this.#socket.uncork();
  }

  pause(): void {
    this.#isPaused = true;
    // An upstream that has sent everything and closed its side would answer a probe with a reset.
    if (this.#part === 'close') this.#socket.setKeepAlive(false);
    this.#socket.pause();
  }

  resume(): void {
    this.#isPaused = false;
    if (this.#part === 'close') this.#socket.setKeepAlive(true, PROBE_DELAY_MS);
    this.#socket.resume();
  }

  /** Closes the connection without a report to the exchange that it serves. */
  destroy(): void {
    this.#receiver = null;
    this.#socket.destroy();
  }

  /** The exchange has ended. Unless its response is complete, the connection is of no further use. */
  leave(receiver: Http1Receiver): void {
    if (this.#receiver === receiver) this.destroy();
  }

  /** Closes the connection, and reports that to the exchange that it serves. */
  fail(error: Error): void {
    const receiver = this.#receiver;
    this.destroy();
    receiver?.onFailure(error);
  }

  /** @param readBuffer memory that is overwritten by the next read of any connection */
  #read(bytes: number, readBuffer: Buffer): void {
    const receiver = this.#receiver;
    if (receiver === null) {
      // RFC 9112 §9.2: nobody has asked for it, and it must not answer the next request.
      this.#socket.destroy();
      return;
    }
    if (!this.#hasWritten) {
      // The request waits for its body, and this is a response to none, such as the 408 of a connection that was idle.
      this.fail(broken('The upstream responded before it was sent a request'));
      return;
    }
    try {
      if (this.#part === 'head') this.#readHeads(receiver, readBuffer, bytes);
      else this.#pass(receiver, upstreamReads.take(readBuffer, 0, bytes));
    } catch (error) {
      this.fail(error instanceof Error ? error : broken(String(error)));
    }
  }

  #readHeads(receiver: Http1Receiver, readBuffer: Buffer, bytes: number): void {
    const before = this.#text.length;
    // What was read before may stand behind the bytes of this read.
    const found = readBuffer.indexOf(HEAD_END_BYTES) + HEAD_END.length;
    let known =
      found >= HEAD_END.length && found <= bytes ? found : Math.min(bytes, PARTIAL_HEAD_BYTES);
    let text = this.#text + readBuffer.toString('latin1', 0, known);
    let start = 0;
    for (;;) {
      const end = text.indexOf(HEAD_END, Math.max(start, before - HEAD_END.length + 1));
      if (end === -1) {
        if (known === bytes) break;
        known = Math.min(bytes, 4 * known);
        text = this.#text + readBuffer.toString('latin1', 0, known);
        continue;
      }
      if (end - start > MAX_HEAD_BYTES) throw tooLarge(`The head exceeds ${MAX_HEAD_BYTES} bytes`);
      const head = readResponseHead(text, start, end, receiver.method);
      start = end + HEAD_END.length;
      if (head.status >= 200) {
        this.#text = '';
        this.#receive(receiver, head, readBuffer, start - before, bytes);
        return;
      }
      this.#inform(receiver, head);
      if (this.#receiver !== receiver) return;
    }
    this.#text = text.slice(start);
    refuseBadBeginning(this.#text, Math.max(0, before - start));
  }

  #inform(receiver: Http1Receiver, { status, headers }: ReceivedHead): void {
    if (status === 101)
      throw badSyntax('The upstream switched protocols without an upgrade request');
    this.#informational += 1;
    if (this.#informational > MAX_INFORMATIONAL) {
      throw tooLarge(`More than ${MAX_INFORMATIONAL} informational responses`);
    }
    receiver.onInformation(status, headers);
  }

  #receive(
    receiver: Http1Receiver,
    head: ReceivedHead,
    readBuffer: Buffer,
    start: number,
    bytes: number,
  ): void {
    this.#isPersistent = head.isPersistent;
    this.#idleMs = head.idleMs;
    const { framing, length } = head;
    const isShort = framing === 'length' && length < LEAST_POOLED_BYTES && length <= bytes - start;
    if (framing === 'none' || isShort) {
      const end = start + length;
      const body = length === 0 ? null : upstreamReads.take(readBuffer, start, end);
      this.#complete(receiver, end === bytes);
      receiver.onWhole(head, body, new HeaderList());
      return;
    }
    this.#part = framing;
    this.#left = length;
    // The memory is overwritten by whatever the receiver causes to be read.
    const rest = start < bytes ? upstreamReads.take(readBuffer, start, bytes) : null;
    if (framing === 'chunks') {
      this.#chunks = new ChunkedReader(MAX_HEAD_BYTES);
      if (rest !== null && rest.length < LEAST_POOLED_BYTES) {
        return this.#receiveChunks(receiver, head, this.#chunks, rest);
      }
    }
    receiver.onHead(head);
    if (rest !== null) this.#pass(receiver, rest);
  }

  /** The read with the head may contain all chunks, as most short responses do. */
  #receiveChunks(
    receiver: Http1Receiver,
    head: ReceivedHead,
    chunks: ChunkedReader,
    bytes: Buffer,
  ): void {
    const pieces: Buffer[] = [];
    let end = 0;
    let failure: unknown = null;
    try {
      end = readPieces(chunks, bytes, (piece) => pieces.push(piece));
    } catch (error) {
      failure = error;
    }
    if (chunks.isDone) {
      this.#complete(receiver, end === bytes.length);
      receiver.onWhole(head, joined(pieces), chunks.trailers);
      return;
    }
    receiver.onHead(head);
    for (const piece of pieces) this.#onChunk(piece);
    if (failure !== null) throw failure;
  }

  /** Passes on what a read contains of a body. */
  #pass(receiver: Http1Receiver, bytes: Buffer): void {
    if (this.#receiver !== receiver) return;
    const { length } = bytes;
    switch (this.#part) {
      case 'length': {
        const size = Math.min(length, this.#left);
        this.#left -= size;
        receiver.onData(size === length ? bytes : bytes.subarray(0, size));
        if (this.#left === 0) this.#end(receiver, size === length, new HeaderList());
        break;
      }
      case 'chunks':
        this.#passChunks(receiver, bytes);
        break;
      default:
        receiver.onData(bytes);
    }
    bufferPool.passedOn(bytes);
  }

  #passChunks(receiver: Http1Receiver, bytes: Buffer): void {
    const chunks = this.#chunks;
    if (chunks === null) return;
    const end = readPieces(chunks, bytes, this.#onChunk);
    if (chunks.piecesOfRead >= MAX_PIECES_OF_TURN) restReading(this.#socket);
    if (chunks.isDone) this.#end(receiver, end === bytes.length, chunks.trailers);
  }

  readonly #onChunk = (piece: Buffer): void => this.#receiver?.onData(piece);

  #end(receiver: Http1Receiver, isExact: boolean, trailers: HeaderList): void {
    if (this.#receiver !== receiver) return;
    this.#complete(receiver, isExact);
    receiver.onEnd(trailers);
  }

  /**
   * The response is complete.
   *
   * @param isExact whether nothing follows that belongs to no response
   */
  #complete(receiver: Http1Receiver, isExact: boolean): void {
    this.#receiver = null;
    this.#part = 'head';
    this.#chunks = null;
    this.#informational = 0;
    this.#hasWritten = false;
    if (!isExact || !this.#isPersistent || !receiver.allowsReuse) {
      this.#socket.destroy();
      return;
    }
    if (this.#isPaused) this.resume();
    this.#owner.released(this, this.#idleMs);
  }

  #onEnd(): void {
    const receiver = this.#receiver;
    // The end of the connection is that of the body only if the upstream has closed it in good order.
    if (receiver !== null && this.#part === 'close' && !this.#isReset()) {
      this.#isPersistent = false;
      this.#end(receiver, true, new HeaderList());
    } else this.fail(this.#error ?? broken('The upstream closed the connection'));
  }

  /**
   * Whether the upstream has reset the connection. A failed write may have reported that already, and libuv reports a
   * reset that arrives together with data as an end; but the system no longer knows the peer then. A Unix socket has
   * no address.
   */
  #isReset(): boolean {
    if (this.#error !== null) return true;
    return (
      this.#owner.target.address.socketPath === null && this.#socket.remoteAddress === undefined
    );
  }

  #onClose(): void {
    this.fail(this.#error ?? broken('The upstream closed the connection'));
    this.#owner.closed(this);
  }
}

/** Reads chunks; what came before an error is passed on as well. */
function readPieces(chunks: ChunkedReader, bytes: Buffer, pass: (piece: Buffer) => void): number {
  const pieces = new PiecesOfRead(bytes, pass);
  try {
    return chunks.read(bytes, 0, pieces.add);
  } finally {
    pieces.flush();
  }
}

function joined(pieces: readonly Buffer[]): Buffer | null {
  return pieces.length > 1 ? Buffer.concat(pieces) : (pieces[0] ?? null);
}
