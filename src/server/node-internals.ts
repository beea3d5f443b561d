import cluster from 'node:cluster';
import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http';
import type { Http2Server } from 'node:http2';
import { type OnReadOpts, Socket } from 'node:net';
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

/** Makes a server that never listens enforce the time limits of its connections. */
export function watchLimits(server: HttpServer): void {
  server.emit('listening');
}

/**
 * Closes the idle connections of a server, which wait for another request. From Node 26 on, Node's own
 * function would also close connections whose first request is still in transit. These are passed in
 * `unasked` and stay open.
 */
export function closeIdle(server: HttpServer, unasked: readonly Socket[]): void {
  for (const socket of unasked) socket.destroy = () => socket;
  server.closeIdleConnections();
  for (const socket of unasked) Reflect.deleteProperty(socket, 'destroy');
}

/** The socket that carries the bytes of a connection: with TLS, the socket below it. */
export function carrierOf(socket: Socket): Socket {
  const parent = '_parent' in socket ? socket._parent : null;
  return parent instanceof Socket ? parent : socket;
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

/** What Node keeps of the option `onread`: the current buffer, the callback, and what returns buffers. */
const READER_PARTS = ['kBuffer', 'kBufferCb', 'kBufferGen'] as const;

/**
 * Makes a connection read into the memory of `reader`, as the option `onread` does for a connection that is
 * opened. There is no such option for accepted ones. Does nothing if this version of Node cannot do that.
 */
export function readInto(socket: Socket, { buffer, callback }: OnReadOpts): void {
  const handle: unknown = Reflect.get(socket, '_handle');
  const useUserBuffer = memberOf(handle, 'useUserBuffer');
  const symbols = Object.getOwnPropertySymbols(socket);
  const parts = READER_PARTS.map((name) => symbols.find((one) => one.description === name));
  const [current, called, next] = parts;
  if (typeof useUserBuffer !== 'function') return;
  if (current === undefined || called === undefined || next === undefined) return;
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

/** The parser of an HTTP server's connection, which is missing in the types. */
interface Parser {
  /** Called by the parser for each head. The returned number tells the parser how to continue. */
  onIncoming(request: IncomingMessage, shouldKeepAlive: boolean): number;
  resume(): void;
  execute(bytes: Buffer): unknown;
}

/** Continue: Node's own callback returns this for every message except an upgrade. */
const GO_ON = 0;
/** Stop, and report the position in `clientError`: the number of llhttp's error `HPE_PAUSED`. */
const STOP = 21;

function parserOf(socket: Socket): Parser | null {
  const parser: unknown = Reflect.get(socket, 'parser');
  const isParser = typeof parser === 'object' && parser !== null && 'onIncoming' in parser;
  return isParser ? (parser as Parser) : null;
}

/**
 * Makes the parser of an HTTP server's connection stop after a head if `mustStop` returns true when that head
 * has been delivered. The server gets a `clientError` with the code `HPE_PAUSED`. Takes effect with the next
 * head.
 */
export function stopParsingWhen(socket: Socket, mustStop: () => boolean): void {
  const parser = parserOf(socket);
  if (parser === null) return;
  const { onIncoming } = parser;
  parser.onIncoming = (request, shouldKeepAlive) => {
    const how = onIncoming(request, shouldKeepAlive);
    return how === GO_ON && mustStop() ? STOP : how;
  };
}

/**
 * Stops reading a connection whose parser has stopped and left `rest`. Reading a body or writing a response
 * would normally resume it. Until {@link goOnReading}, nothing can.
 */
export function stopReading(socket: Socket, rest: Buffer): void {
  socket.pause();
  if (rest.length > 0) socket.unshift(rest);
  socket.resume = () => socket;
  const parser = parserOf(socket);
  parser?.resume();
  // Lets the parser find that the message of this head is complete, if it is.
  parser?.execute(NOTHING);
}

const NOTHING = Buffer.alloc(0);

/** Resumes reading after {@link stopReading}, unless Node itself waits for the client to read responses. */
export function goOnReading(socket: Socket): void {
  Reflect.deleteProperty(socket, 'resume');
  if (!socket.destroyed && Reflect.get(socket, '_paused') !== true) socket.resume();
}

/** Events of its sockets that an HTTP server listens for. */
const HTTP_EVENTS = ['data', 'end', 'drain', 'error', 'timeout', 'pause', 'resume'] as const;
/** The names of its listeners. Listeners of other code stay. */
const HTTP_LISTENERS = new Set([
  'bound socketOnData',
  'bound socketOnEnd',
  'bound socketOnDrain',
  'bound socketOnTimeout',
  'socketOnTimeout',
  'socketOnError',
  'onSocketPause',
  'onSocketResume',
]);
const HTTP_CLOSE = new Set(['bound socketOnClose']);

/**
 * Detaches the connection of a response whose head has been written. The HTTP server releases the connection
 * together with its parser and both messages, as it does for an upgrade. Everything that the client sends
 * from now on is for the caller. Must not be called while the parser runs. Returns false, without any change,
 * if the connection is not in the expected state.
 */
export function releaseConnection(request: IncomingMessage, response: ServerResponse): boolean {
  const { socket } = response;
  if (socket === null || socket.destroyed || parserCloseOf(socket) === undefined) return false;
  response.detachSocket(socket);
  // Its request is in progress and would be destroyed, so its socket is removed first.
  Reflect.set(request, 'socket', null);
  return releaseParser(socket);
}

/**
 * Does the same for a connection without a request in progress. The caller has to keep the bytes that were
 * read but not parsed.
 */
export function releaseParser(socket: Socket): boolean {
  const onClose = parserCloseOf(socket);
  if (onClose === undefined || socket.destroyed) return false;
  for (const event of HTTP_EVENTS) {
    for (const listener of socket.listeners(event)) {
      if (isOneOf(HTTP_LISTENERS, listener)) socket.off(event, listener);
    }
  }
  Reflect.deleteProperty(socket, 'resume');
  socket.off('close', onClose);
  closeQuietly(socket, onClose);
  // The server's own methods detect other readers, with one closure each.
  const { addListener, on, prependListener } = Socket.prototype;
  Object.assign(socket, { addListener, on, prependListener });
  // The next reader resumes the socket itself.
  socket.setTimeout(0);
  return true;
}

/**
 * Node frees the parser and destroys the requests in progress, each with an error that nothing reads. The
 * stack trace of that error would be the largest cost of opening a stream.
 */
function closeQuietly(socket: Socket, onClose: Listener): void {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    onClose.call(socket);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function parserCloseOf(socket: Socket): Listener | undefined {
  const listeners: readonly unknown[] = socket.listeners('close');
  return listeners.find((one) => isOneOf(HTTP_CLOSE, one));
}

type Listener = (...args: unknown[]) => void;

function isOneOf(names: ReadonlySet<string>, listener: unknown): listener is Listener {
  return typeof listener === 'function' && names.has(listener.name);
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
