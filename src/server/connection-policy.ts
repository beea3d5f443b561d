import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { ClientCertificate } from '../http/client-certificate.ts';
import { type HandshakePolicy, isVerified } from '../tls/handshake-policy.ts';
import { counter, type Family, gauge } from '../kernel/measures.ts';
import type { ServerOptions } from '../config/config.ts';
import type { Exchange, UpgradeRequest } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import { httpDate } from '../http/http-date.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import type { Peer } from './proxy-protocol.ts';
import { carrierOf } from '../kernel/node-internals.ts';

/** The properties that a handshake has settled for all requests of its connection. */
export interface Handshake {
  readonly policyId: string;
  /** `TLSv1.3`, say. */
  readonly tlsVersion: string;
  /** The verified certificate of the client; null if it was not verified. */
  readonly certificate: ClientCertificate | null;
}

/**
 * A property rather than a map by socket, because the sockets of HTTP/2 requests are proxies of the real one.
 */
const HANDSHAKE = Symbol('what the handshake has settled');

interface Marked {
  [HANDSHAKE]?: Handshake;
}

/** Records what a connection's handshake has settled, once its client is accepted. */
export function rememberHandshake(
  socket: TLSSocket & Marked,
  { id, clientAuth }: HandshakePolicy,
): void {
  const given = clientAuth === null ? undefined : socket.getPeerX509Certificate();
  const isProof = given !== undefined && clientAuth !== null && isVerified(socket, clientAuth);
  socket[HANDSHAKE] = {
    policyId: id,
    tlsVersion: socket.getProtocol() ?? '',
    certificate: isProof ? new ClientCertificate(given) : null,
  };
}

/** Returns what the handshake of a connection has settled; null without TLS. */
export function handshakeOf(socket: Socket & Marked): Handshake | null {
  return socket[HANDSHAKE] ?? null;
}

/** The reason why a connection was closed before a request or a TLS handshake was read from it. */
type TurnedAway = 'full' | 'client' | 'not_ready' | 'proxy_header';

/** Counters for the connections of all listeners. */
export class ConnectionMeasures {
  accepted = 0;
  open = 0;
  failedHandshakes = 0;
  readonly turnedAway: Record<TurnedAway, number> = {
    full: 0,
    client: 0,
    not_ready: 0,
    proxy_header: 0,
  };
  /** By the arguments of {@link handshake}; their values are OpenSSL's. */
  readonly #handshakes = new Map<string, { labels: Record<string, string>; count: number }>();

  handshake(version: string, resumed: boolean, protocol: string): void {
    const key = `${version} ${resumed} ${protocol}`;
    const known = this.#handshakes.get(key);
    if (known !== undefined) known.count += 1;
    else {
      const labels = { version, resumed: resumed ? 'yes' : 'no', protocol };
      this.#handshakes.set(key, { labels, count: 1 });
    }
  }

  families(): readonly Family[] {
    return [
      gauge('hubgate_connections_open', 'Open connections.', this.open),
      counter('hubgate_connections_total', 'Accepted connections.', this.accepted),
      counter(
        'hubgate_connections_turned_away_total',
        'Connections closed at once: the listener was full, one client had too many, no configuration was active yet, or the PROXY protocol header was missing or malformed.',
        Object.entries(this.turnedAway).map(([reason, count]) => [{ reason }, count]),
      ),
      counter(
        'hubgate_tls_handshakes_total',
        'Successful TLS handshakes, by version, resumption and protocol.',
        [...this.#handshakes.values()].map(({ labels, count }) => [labels, count]),
      ),
      counter(
        'hubgate_tls_handshake_failures_total',
        'Failed TLS handshakes.',
        this.failedHandshakes,
      ),
    ];
  }
}

/** The settings that all exchanges of a service have in common. */
export interface ExchangeSettings {
  readonly log: Logger;
  /**
   * Determines the client's address when there are trusted proxies; null for the address of the connection.
   */
  readonly clientAddress: ((headers: HeaderList, peer: string) => string) | null;
  /** The parts of a request that stay as the client wrote them. */
  readonly keeps: Pick<ServerOptions, 'forwardRawPath' | 'underscoresInHeaders'>;
  /** How long a client may be silent in the middle of a body; null for no limit. */
  readonly silence: { readonly limitMs: number; readonly clock: Clock } | null;
}

/** The properties of a connection, independent of the request. */
export interface ExchangeConnection {
  readonly secure: boolean;
  /** null without TLS. */
  readonly tlsVersion: string | null;
  readonly peer: Peer;
  readonly upgrade: UpgradeRequest | null;
}

/** The destination of requests that a protocol has read and not refused. */
export interface RequestSink {
  /** The settings of the active service; null if there is none. */
  settings(): ExchangeSettings | null;
  /** @param handshake the one of its connection; null without TLS */
  take(exchange: Exchange, handshake: Handshake | null): void;
}

// Until its first request, a connection has one deadline for the PROXY header, the TLS handshake and the head
// together (`read_header`). The handshake may take at most 10 s of it. Afterwards the limits of the protocol
// apply.

/** Set on the accepted socket, which is below the TLS socket. */
const DEADLINE = Symbol('deadline of the first request');

interface Deadline {
  readonly cancel: () => void;
  expire: () => void;
}

interface Carrier {
  [DEADLINE]?: Deadline | undefined;
}

/**
 * Sets the deadline of a new connection until its first request: for the PROXY protocol header, the TLS
 * handshake and the head of the request together. 0 milliseconds means no limit.
 */
export function expectFirstRequest(socket: Socket & Carrier, limitMs: number, clock: Clock): void {
  if (limitMs === 0) return;
  const cancel = clock.after(limitMs, () => socket[DEADLINE]?.expire());
  socket[DEADLINE] = { cancel, expire: () => socket.destroy() };
}

/** Sets how the connection is closed at its deadline, now that its protocol is known. */
export function onNoRequest(socket: Socket, expire: () => void): void {
  const deadline = deadlineOf(socket);
  if (deadline !== undefined) deadline.expire = expire;
}

/** Cancels the deadline: a request has arrived, or the connection has closed. */
export function forgetDeadline(socket: Socket): void {
  const deadline = deadlineOf(socket);
  if (deadline === undefined) return;
  deadline.cancel();
  const carrier: Socket & Carrier = carrierOf(socket);
  // Not deleted: V8 turns a socket that has lost a property into a hash table, which is slower and three
  // times as large.
  carrier[DEADLINE] = undefined;
}

function deadlineOf(socket: Socket): Deadline | undefined {
  const carrier: Socket & Carrier = carrierOf(socket);
  return carrier[DEADLINE];
}

/** Time that a client which may still be sending has to read the last response before the connection is cut. */
const LINGER_MS = 2000;

/**
 * Closes after what has been written. If a connection were closed while bytes arrive, it would be reset, and the
 * client might never read the last response (RFC 9112 §9.6).
 */
export function linger(socket: Socket, clock: Clock): void {
  socket.end();
  socket.resume();
  const cancel = clock.after(LINGER_MS, () => socket.destroy());
  socket.once('close', cancel);
}

/**
 * Sends a refusal over HTTP/1.1, before there is an exchange, and closes the connection.
 *
 * @param reason text in ASCII
 */
export function refuseConnection(
  socket: Socket,
  clock: Clock,
  status: number,
  reason: string,
): void {
  const type = reason === '' ? [] : ['Content-Type: text/plain; charset=utf-8'];
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    // RFC 9110 §6.6.1: a refusal has a date, like any other response.
    `Date: ${httpDate()}`,
    'Connection: close',
    ...type,
    `Content-Length: ${reason.length}`,
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n${reason}`);
  linger(socket, clock);
}
