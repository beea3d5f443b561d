import { isIP, type Socket, SocketAddress } from 'node:net';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import { plainAddress } from '../http/forwarded.ts';
import { carrierOf } from '../kernel/node-internals.ts';

/**
 * The PROXY protocol, versions 1 and 2, in which a proxy names the client that it connects for.
 *
 * @see https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt
 */

/** Bytes of the longest version 1 header, including its line end (§2.1). */
export const MAX_V1_BYTES = 107;
/**
 * Bytes of addresses and extensions of a version 2 header. The format allows 65,535, but no proxy sends that
 * many.
 */
export const MAX_V2_PAYLOAD_BYTES = 4096;

const V1_START = Buffer.from('PROXY ', 'latin1');
const V2_SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V2_FIXED_BYTES = 16;
const CRLF = '\r\n';

export interface ProxyHeader {
  /** The client of the proxy; null if the proxy connects for itself or does not name a client. */
  readonly source: Peer | null;
  /** Bytes of the header. The bytes after it belong to the connection. */
  readonly length: number;
}

/**
 * Reads the header at the beginning of a connection; null if more bytes are needed. A header is never longer
 * than the bounds above.
 *
 * @throws HubgateError `bad-proxy-header`
 */
export function parseProxyHeader(bytes: Buffer): ProxyHeader | null {
  if (startsLike(bytes, V1_START)) return parseVersion1(bytes);
  if (startsLike(bytes, V2_SIGNATURE)) return parseVersion2(bytes);
  throw bad('the connection does not begin with a header');
}

export interface HeaderReading {
  /** Milliseconds for the whole header; 0 means no limit. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  /**
   * Called when the header has been removed from the connection. The connection is then paused, with the rest
   * unread.
   */
  readonly onHeader: (header: ProxyHeader) => void;
  /**
   * Called with the reason why the connection cannot be used; it has to destroy the connection. A connection
   * that sends nothing, such as the health check of a load balancer, is destroyed without a call.
   */
  readonly onRefuse: (error: HubgateError) => void;
}

/** Removes the header from a connection that nothing has read from. */
export function readProxyHeader(socket: Socket, reading: HeaderReading): void {
  const { timeoutMs, clock, onHeader, onRefuse } = reading;
  let received: Buffer = Buffer.alloc(0);
  const stop = (): void => {
    cancel();
    socket.off('readable', onReadable).off('close', stop);
  };
  const refuse = (error: HubgateError): void => {
    stop();
    if (received.length === 0) socket.destroy();
    else onRefuse(error);
  };
  const onReadable = (): void => {
    for (let chunk = takeChunk(socket); chunk !== null; chunk = takeChunk(socket)) {
      received = Buffer.concat([received, chunk]);
      const header = attempt(received);
      if (header instanceof HubgateError) return refuse(header);
      if (header === null) continue;
      stop();
      if (received.length > header.length) socket.unshift(received.subarray(header.length));
      onHeader(header);
      return;
    }
    if (socket.readableEnded) refuse(bad('the connection ends before it'));
  };
  const cancel =
    timeoutMs === 0
      ? () => {}
      : clock.after(timeoutMs, () => refuse(bad(`it does not come within ${timeoutMs} ms`)));
  socket.on('readable', onReadable).once('close', stop);
}

function attempt(bytes: Buffer): ProxyHeader | null | HubgateError {
  try {
    return parseProxyHeader(bytes);
  } catch (error) {
    if (error instanceof HubgateError) return error;
    throw error;
  }
}

function takeChunk(socket: Socket): Buffer | null {
  // Without an encoding, a socket reads buffers, although its type does not declare that.
  return socket.read() as Buffer | null;
}

/** Whether these bytes are, or can become, a text with this beginning. */
function startsLike(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.subarray(0, length).equals(start.subarray(0, length));
}

/** `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443`, CRLF (§2.1). */
function parseVersion1(bytes: Buffer): ProxyHeader | null {
  const text = bytes.subarray(0, MAX_V1_BYTES).toString('latin1');
  const end = text.indexOf(CRLF);
  const control = text.search(/[^\x20-\x7e]/);
  // A CR at the end may still be followed by its LF.
  if (end === -1 && control !== -1 && !(control === text.length - 1 && text.endsWith('\r'))) {
    throw bad('its line contains a control character');
  }
  if (end === -1) {
    if (bytes.length >= MAX_V1_BYTES) throw bad(`its line is longer than ${MAX_V1_BYTES} bytes`);
    return null;
  }
  if (control < end) throw bad('its line contains a control character');
  const [, family = '', ...rest] = text.slice(0, end).split(' ');
  const length = end + CRLF.length;
  if (family === 'UNKNOWN') return { source: null, length };
  const version = VERSIONS[family];
  const [source = '', destination = '', sourcePort = '', destinationPort = '', more] = rest;
  const isGood =
    version !== undefined &&
    more === undefined &&
    [source, destination].every((address) => isAddress(address, version)) &&
    [sourcePort, destinationPort].every(isPort);
  if (!isGood) throw bad('its line is malformed');
  return { source: peer(source, version, Number(sourcePort)), length };
}

const VERSIONS: Readonly<Record<string, 4 | 6>> = { TCP4: 4, TCP6: 6 };

function isAddress(text: string, version: 4 | 6): boolean {
  return isIP(text) === version && !text.includes('%');
}

function isPort(text: string): boolean {
  return /^(?:0|[1-9]\d{0,4})$/.test(text) && Number(text) <= 65_535;
}

/** Fields of the binary header: the command and the address family (§2.2). */
const LOCAL = 0x20;
const PROXY = 0x21;
const UNSPECIFIED = 0x00;
const TCP4 = 0x11;
const TCP6 = 0x21;
const UNIX_STREAM = 0x31;

/** Bytes of both addresses, with ports if the family has them. */
const ADDRESS_BYTES: Readonly<Record<number, number>> = {
  [TCP4]: 12,
  [TCP6]: 36,
  [UNIX_STREAM]: 216,
};

function parseVersion2(bytes: Buffer): ProxyHeader | null {
  if (bytes.length < V2_FIXED_BYTES) return null;
  const command = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const payloadBytes = bytes.readUInt16BE(14);
  if (command !== LOCAL && command !== PROXY) throw bad('its version or command is unknown');
  if (payloadBytes > MAX_V2_PAYLOAD_BYTES) {
    throw bad(`it is longer than ${MAX_V2_PAYLOAD_BYTES} bytes`);
  }
  const addressBytes = family === UNSPECIFIED ? 0 : ADDRESS_BYTES[family];
  if (command === PROXY && (addressBytes === undefined || payloadBytes < addressBytes)) {
    throw bad('its address is malformed');
  }
  const length = V2_FIXED_BYTES + payloadBytes;
  if (bytes.length < length) return null;
  const payload = bytes.subarray(V2_FIXED_BYTES, length);
  return { source: command === LOCAL ? null : sourceOf(family, payload), length };
}

/** Source address, destination address, source port, destination port; extensions follow. */
function sourceOf(family: number, payload: Buffer): Peer | null {
  if (family === TCP4) {
    return peer([...payload.subarray(0, 4)].join('.'), 4, payload.readUInt16BE(8));
  }
  if (family !== TCP6) return null;
  const groups = Array.from({ length: 8 }, (_, i) => payload.readUInt16BE(2 * i).toString(16));
  return peer(groups.join(':'), 6, payload.readUInt16BE(32));
}

/** The address in its canonical form, the same as that of a socket. */
function peer(text: string, version: 4 | 6, port: number): Peer {
  const { address } = new SocketAddress({ address: text, family: `ipv${version}` });
  return { address: plainAddress(address), port };
}

function bad(why: string): HubgateError {
  return new HubgateError('bad-proxy-header', `Invalid PROXY protocol header: ${why}`);
}

/** The address of a connection's other end, or the address in a PROXY protocol header. */
export interface Peer {
  /** Empty for a Unix socket. */
  readonly address: string;
  readonly port: number;
}

/**
 * A property, like the handshake policy, because the sockets of HTTP/2 requests are proxies of the real one.
 */
const PEER = Symbol('who is at the other end');

interface Marked {
  [PEER]?: Peer;
}

const NOBODY: Peer = { address: '', port: 0 };

/**
 * The peers of a listener's open connections, and the number of connections of each. The address in a PROXY
 * protocol header is stored on the accepted socket, and found again from the TLS socket above it. An address
 * and a port would not identify a connection: if a machine has two addresses, one client can connect to both
 * from the same port.
 */
export class Peers {
  readonly #connections = new Map<string, number>();

  /**
   * Records a connection until it closes, and returns its peer; `named` is the peer in a PROXY protocol
   * header.
   */
  add(socket: Socket & Marked, named: Peer | null): Peer {
    const peer = named ?? endOf(socket);
    const { address } = peer;
    socket[PEER] = peer;
    this.#connections.set(address, this.connectionsOf(address) + 1);
    socket.on('close', () => {
      const left = this.connectionsOf(address) - 1;
      if (left === 0) this.#connections.delete(address);
      else this.#connections.set(address, left);
    });
    return peer;
  }

  /**
   * Stores the peer on the socket that requests will have. Returns false if the connection has closed in the
   * meantime. Otherwise its peer would seem to be the proxy that opened it.
   */
  mark(socket: Socket & Marked): boolean {
    const carrier: Socket & Marked = carrierOf(socket);
    const peer = carrier[PEER];
    if (peer === undefined || carrier.destroyed) return false;
    socket[PEER] = peer;
    return true;
  }

  connectionsOf(address: string): number {
    return this.#connections.get(address) ?? 0;
  }
}

/**
 * Returns the peer that {@link Peers.mark} has stored, or an empty one if an HTTP/2 connection is already
 * gone.
 */
export function peerOf(socket: Socket & Marked): Peer {
  return socket[PEER] ?? NOBODY;
}

function endOf({ remoteAddress = '', remotePort = 0 }: Socket): Peer {
  return { address: plainAddress(remoteAddress), port: remotePort };
}
