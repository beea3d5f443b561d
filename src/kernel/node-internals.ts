import cluster from 'node:cluster';
import type { Server as HttpServer, ServerResponse } from 'node:http';
import type { Http2Server, Http2Session } from 'node:http2';
import { type OnReadOpts, type Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Server as TlsServer } from 'node:tls';

/**
 * This is the only module that uses undocumented parts of Node. Its test fails on a version of Node in which
 * any of them has changed.
 */

/** Passes a connection to a server that never listens, as if the server had accepted it. */
export function giveConnection(server: HttpServer | Http2Server | TlsServer, socket: Socket): void {
  server.emit('connection', socket);
}

type Listening = (errno: number, handle: { close(): void } | null) => void;
type GetServer = (server: { _handle: unknown }, query: object, done: Listening) => void;

/**
 * Lets the workers of a cluster share a listening socket by its address alone. Node also distinguishes the
 * sockets by how often each worker has tried to listen there. A worker that has failed once more than another
 * would ask for a socket of its own, and get the error that the port is in use. Node also keeps the socket of
 * a failed attempt, and would give it to the next one. Does nothing in a process that is not a worker.
 */
export function shareByAddress(): void {
  const internals: { _getServer?: GetServer } = cluster as { _getServer?: GetServer };
  const getServer = internals._getServer;
  if (getServer === undefined || !cluster.isWorker) return;
  internals._getServer = (server, query, done) => {
    getServer(server, { ...query, index: 0 }, (errno, handle) => {
      done(errno, handle);
      if (server._handle !== handle) handle?.close();
    });
  };
}

/**
 * Sets the options for accepted connections that a server was created with on its listening socket. Linux passes them
 * on to connections (tcp(7)), which takes no system call where Node makes five for each connection. The connections
 * that were waiting before do not have them, so Node goes on setting them until `waiting` connections have been
 * accepted. Does nothing on other systems, for a Unix socket, and if this version of Node cannot do that.
 *
 * @param server listens already
 * @param waiting the largest number of connections that may have been waiting
 * @param keepAliveMs time of silence after which the system probes a connection
 */
export function passOptionsOn(server: Server, waiting: number, keepAliveMs: number): void {
  const handle: unknown = Reflect.get(server, '_handle');
  const setNoDelay = memberOf(handle, 'setNoDelay');
  const setKeepAlive = memberOf(handle, 'setKeepAlive');
  if (process.platform !== 'linux') return;
  if (typeof setNoDelay !== 'function' || typeof setKeepAlive !== 'function') return;
  const results = [
    Reflect.apply(setNoDelay, handle, [true]),
    Reflect.apply(setKeepAlive, handle, [true, Math.floor(keepAliveMs / 1_000)]),
  ];
  if (results.some((errno) => errno !== 0)) return;
  let left = waiting;
  const count = (): void => {
    left -= 1;
    if (left > 0) return;
    server.off('connection', count);
    Reflect.set(server, 'noDelay', false);
    Reflect.set(server, 'keepAlive', false);
  };
  server.on('connection', count);
}

/** The socket that carries the bytes of a connection: with TLS, the socket below it. */
export function carrierOf(socket: Socket): Socket {
  const parent = '_parent' in socket ? socket._parent : null;
  return parent instanceof Socket ? parent : socket;
}

/**
 * Writes nothing to a connection. If its peer has reset it, the system refuses even that, and the connection closes
 * with an error. A connection that nothing reads closes no other way. Does nothing while data waits to be written,
 * because its write reports the reset itself.
 */
export function probe(socket: Socket): void {
  // TLS would not pass an empty write on.
  const carrier = carrierOf(socket);
  for (const one of [socket, carrier]) {
    if (!one.writable || one.writableLength > 0) return;
  }
  carrier.write('');
}

/**
 * The bytes that have left a TLS connection if TLS holds data back although the connection below has nothing
 * to write; null otherwise. If the number is the same some seconds later, the write never ends. Before Node
 * 26, this can happen to an HTTP/2 connection when its client leaves. Reading is paused for that write, so
 * nothing reports the end of the connection.
 */
export function bytesBeforeStuckWrite(socket: Socket): number | null {
  const handle: unknown = Reflect.get(socket, '_handle');
  const below = memberOf(handle, '_parent');
  const waiting = memberOf(handle, 'writeQueueSize');
  const written = memberOf(below, 'bytesWritten');
  const isStuck = typeof waiting === 'number' && waiting > 0;
  return isStuck && memberOf(below, 'writeQueueSize') === 0 && typeof written === 'number'
    ? written
    : null;
}

function memberOf(object: unknown, name: string): unknown {
  return typeof object === 'object' && object !== null ? Reflect.get(object, name) : undefined;
}

/** What is used of Node's handle of a connection. */
export interface ReadingHandle {
  /** Whether Node's stream wants to read: false while it is paused. */
  readonly reading?: unknown;
  /** Bytes that wait to be written. */
  readonly writeQueueSize?: unknown;
  readStart(): unknown;
}

/**
 * Stops reading a connection. What has been read already is not affected. Returns the handle that starts it again;
 * null if this version of Node cannot do that, or if the connection is closed.
 */
export function stopReading(socket: Duplex): ReadingHandle | null {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (!canStop(handle)) return null;
  handle.readStop();
  return handle;
}

function canStop(handle: unknown): handle is ReadingHandle & { readStop(): unknown } {
  return ['readStart', 'readStop'].every((name) => typeof memberOf(handle, name) === 'function');
}

/** What Node keeps of the option `onread`: the current buffer, the callback, and what returns buffers. */
const READER_PARTS = ['kBuffer', 'kBufferCb', 'kBufferGen'] as const;

type ReaderParts = readonly [buffer: symbol, callback: symbol, next: symbol];

/** Found at the first connection; null if this version of Node does not have them. */
let readerParts: ReaderParts | null | undefined;

function findReaderParts(socket: Socket): ReaderParts | null {
  const symbols = Object.getOwnPropertySymbols(socket);
  const [buffer, callback, next] = READER_PARTS.map((name) =>
    symbols.find((one) => one.description === name),
  );
  if (buffer === undefined || callback === undefined || next === undefined) return null;
  return [buffer, callback, next];
}

/**
 * Makes a connection read into the memory of `reader`, as the option `onread` does for a connection that is
 * opened. There is no such option for accepted ones. Does nothing if this version of Node cannot do that.
 */
export function readInto(socket: Socket, { buffer, callback }: OnReadOpts): void {
  const handle: unknown = Reflect.get(socket, '_handle');
  const useUserBuffer = memberOf(handle, 'useUserBuffer');
  readerParts ??= findReaderParts(socket);
  if (typeof useUserBuffer !== 'function' || readerParts === null) return;
  const [current, called, next] = readerParts;
  const first = typeof buffer === 'function' ? buffer() : buffer;
  Reflect.set(socket, current, first);
  Reflect.set(socket, called, callback);
  Reflect.set(socket, next, typeof buffer === 'function' ? buffer : null);
  Reflect.apply(useUserBuffer, handle, [first]);
}

/** Node's own function for writing heads: after the responses to earlier requests of the connection. */
interface WritesInTurn {
  _writeRaw(data: string, encoding: 'latin1'): boolean;
}

/** Writes bytes before the head of a response, in its turn. */
export function writeAhead(response: ServerResponse, bytes: string): void {
  // Missing in Node's types; the documented functions write only the head and the body.
  (response as ServerResponse & WritesInTurn)._writeRaw(bytes, 'latin1');
}

/** Whether a 100 has been sent, which Node does by itself if a server does not listen for `checkContinue`. */
export function hasSentContinue(response: ServerResponse): boolean {
  return '_sent100' in response && response._sent100 === true;
}

/**
 * A listener that many sockets share, with the socket as its argument. A function for each socket, plus the
 * wrapper that `once` creates, would stay in memory as long as the connection.
 */
export function sharedListener<Args extends readonly unknown[]>(
  handle: (socket: Socket, ...args: Args) => void,
): (this: Socket, ...args: Args) => void {
  return function (...args) {
    handle(this, ...args);
  };
}

/**
 * Lets an HTTP/2 session close when its last stream has ended. Once a session has sent GOAWAY, Node takes no notice of
 * errors of its connection, nor of its end, and its streams would stay open without a connection. Node's own `close()`
 * sends GOAWAY at once, also when the peer has sent it. So it is called only when there are no streams.
 */
export class SessionClose {
  readonly #session: Http2Session;
  readonly #hasStreams: () => boolean;
  /** Node's own. */
  readonly #close: () => void;
  #isBegun = false;

  constructor(session: Http2Session, hasStreams: () => boolean) {
    this.#session = session;
    this.#hasStreams = hasStreams;
    this.#close = session.close.bind(session);
    session.close = (callback) => {
      if (callback !== undefined) session.once('close', callback);
      this.#begin();
    };
  }

  /** Whether no more streams may be opened. */
  get isBegun(): boolean {
    return this.#isBegun;
  }

  /** To be called whenever the last stream has ended. */
  streamsEnded(): void {
    if (this.#isBegun && !this.#session.destroyed) this.#close();
  }

  #begin(): void {
    if (this.#isBegun || this.#session.destroyed) return;
    this.#isBegun = true;
    if (!this.#hasStreams()) this.streamsEnded();
  }
}
