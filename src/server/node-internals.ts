import cluster from 'node:cluster';
import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http';
import type { Http2Server } from 'node:http2';
import { Socket } from 'node:net';
import type { Server as TlsServer } from 'node:tls';

/**
 * What is used of Node beyond its documentation: here and nowhere else. The test of this file fails
 * on a version of Node where any of it has changed.
 */

/** Gives a server that never listens a connection as if it had accepted it. */
export function giveConnection(server: HttpServer | Http2Server | TlsServer, socket: Socket): void {
  server.emit('connection', socket);
}

type Listening = (errno: number, handle: { close(): void } | null) => void;
type GetServer = (server: { _handle: unknown }, query: object, done: Listening) => void;

/**
 * Lets the workers of a cluster share a listening socket by its address alone. Node tells them apart
 * by how often each has tried to listen there as well: one that has failed once more than another
 * would ask for a socket of its own, and be told that the port is taken. And it keeps the socket of
 * an attempt that failed, which the next one would be given. Does nothing in a process that is no
 * worker.
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

/** Makes a server that never listens watch the time limits of its connections. */
export function watchLimits(server: HttpServer): void {
  server.emit('listening');
}

/**
 * Closes the connections of a server that wait for another request. From Node 26 on its own function
 * takes those as well whose first request is still on its way: they are named, and stay.
 */
export function closeIdle(server: HttpServer, unasked: readonly Socket[]): void {
  for (const socket of unasked) socket.destroy = () => socket;
  server.closeIdleConnections();
  for (const socket of unasked) Reflect.deleteProperty(socket, 'destroy');
}

/** What carries the bytes of a connection: for TLS the socket beneath. */
export function carrierOf(socket: Socket): Socket {
  const parent = '_parent' in socket ? socket._parent : null;
  return parent instanceof Socket ? parent : socket;
}

/**
 * The bytes that have left a TLS connection while TLS holds something back although the connection below it has
 * nothing to write; null otherwise. Where the number is the same some seconds later, the write never ends: before
 * Node 26 a connection of HTTP/2 may come to that when its client leaves. Reading is paused for that write, so
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

/** How Node itself writes heads of its own: behind the answers to earlier requests of the connection. */
interface WritesInTurn {
  _writeRaw(data: string, encoding: 'latin1'): boolean;
}

/** Writes bytes ahead of the head of a response, in its turn. */
export function writeAhead(response: ServerResponse, bytes: string): void {
  // Node's types leave it out; the documented writes are for the head and the body only.
  (response as ServerResponse & WritesInTurn)._writeRaw(bytes, 'latin1');
}

/** What an HTTP server's connection is parsed by, which the types leave out. */
interface Parser {
  /** Told of each head, by the parser; what it returns says how the parser goes on. */
  onIncoming(request: IncomingMessage, shouldKeepAlive: boolean): number;
  resume(): void;
  execute(bytes: Buffer): unknown;
}

/** Go on: so Node's own callback says of every message but an upgrade. */
const GO_ON = 0;
/** Stop, and say by `clientError` where: the number of llhttp's error `HPE_PAUSED`. */
const STOP = 21;

function parserOf(socket: Socket): Parser | null {
  const parser: unknown = Reflect.get(socket, 'parser');
  const isParser = typeof parser === 'object' && parser !== null && 'onIncoming' in parser;
  return isParser ? (parser as Parser) : null;
}

/**
 * Makes the parser of an HTTP server's connection stop behind a head for which `mustStop` holds once it
 * has been told of; the server learns of it by `clientError`, with the code `HPE_PAUSED`. From the next
 * head on.
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
 * Stops reading a connection whose parser has stopped and left `rest`. Whoever reads a body or writes an
 * answer would have it go on: until {@link goOnReading} nobody can.
 */
export function stopReading(socket: Socket, rest: Buffer): void {
  socket.pause();
  if (rest.length > 0) socket.unshift(rest);
  socket.resume = () => socket;
  const parser = parserOf(socket);
  parser?.resume();
  // It finds that the message of this head is complete, if it is.
  parser?.execute(NOTHING);
}

const NOTHING = Buffer.alloc(0);

/** Goes on where {@link stopReading} has stopped, unless Node itself waits for the client to take answers. */
export function goOnReading(socket: Socket): void {
  Reflect.deleteProperty(socket, 'resume');
  if (!socket.destroyed && Reflect.get(socket, '_paused') !== true) socket.resume();
}

/** Events for which an HTTP server listens on its sockets. */
const HTTP_EVENTS = ['data', 'end', 'drain', 'error', 'timeout', 'pause', 'resume'] as const;
/** Its functions that listen; what others have added stays. */
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
 * Takes the connection of a response whose head has been written away from its HTTP server, which
 * forgets it with its parser and both messages, as it does for an upgrade. What the client sends
 * from now on is for the caller. Not to be called while the parser runs. False, and nothing has
 * changed, when the connection is not as it is known.
 */
export function releaseConnection(request: IncomingMessage, response: ServerResponse): boolean {
  const { socket } = response;
  if (socket === null || socket.destroyed || parserCloseOf(socket) === undefined) return false;
  response.detachSocket(socket);
  // Its request is under way and would be destroyed: this one without its socket.
  Reflect.set(request, 'socket', null);
  return releaseParser(socket);
}

/**
 * The same for a connection on which nothing is under way. What was read of it and not parsed is the
 * caller's to keep.
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
  // The server's own, which watch for others that read: a closure each.
  const { addListener, on, prependListener } = Socket.prototype;
  Object.assign(socket, { addListener, on, prependListener });
  // Whatever comes next reads by itself.
  socket.setTimeout(0);
  return true;
}

/**
 * Node frees the parser, and destroys the requests that are under way, each with an error for nobody:
 * its stack would be the dearest thing of a stream that is opened.
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
 * A listener that many sockets share, told which of them it was: a function for each, and what
 * `once` makes beside it, would be held as long as the connection.
 */
export function sharedListener<Args extends readonly unknown[]>(
  handle: (socket: Socket, ...args: Args) => void,
): (this: Socket, ...args: Args) => void {
  return function (...args) {
    handle(this, ...args);
  };
}
