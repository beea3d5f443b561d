// A listener binds its port while a configuration is built, because binding may fail. It holds at most 1,000
// connections until it has a service. The service decides whether TLS is used.

import { chmodSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import type { BindAddress, ServerOptions } from '../config/config.ts';
import { answer, answerError } from '../http/answer.ts';
import type { Exchange } from '../http/exchange.ts';
import type { AddressSet } from '../http/forwarded.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import { type HubgateError, messageOf } from '../kernel/error.ts';
import { isPowerOfTwo, type Logger } from '../kernel/log.ts';
import type { Certificate } from '../tls/certificate.ts';
import type { CertificateSource } from '../tls/certificates.ts';
import type { TicketKeys } from '../tls/ticket-keys.ts';
import { BACKLOG, bindServer, type InheritedSockets } from './bound-server.ts';
import {
  type ExchangeSettings,
  type ConnectionMeasures,
  type Handshake,
  expectFirstRequest,
  forgetDeadline,
} from './connection-policy.ts';
import { type Peer, Peers, readProxyHeader } from './proxy-protocol.ts';
import { Protocols } from './protocols.ts';
import { passOptionsOn, sharedListener } from '../kernel/node-internals.ts';
import { type HandshakePolicies, type Protocol, TlsEndpoint } from './tls-endpoint.ts';

/** The function of a listener: what it does with its connections. A reload replaces it in one step. */
export interface Service {
  /**
   * Handles one exchange; never throws.
   *
   * @param handshake the one of its connection; null without TLS
   */
  readonly handle: (exchange: Exchange, handshake: Handshake | null) => void;
  /** null on a listener without TLS, like the policies. */
  readonly certificates: CertificateSource | null;
  readonly policies: HandshakePolicies | null;
  readonly limits: ServerOptions;
  /** The peers whose connections begin with a PROXY protocol header. */
  readonly sendsProxyHeader: AddressSet;
  /** Determines the client's address when there are trusted proxies; null for the address of the peer. */
  readonly clientAddress: ((headers: HeaderList, peer: string) => string) | null;
}

/** Begins the service of a listener: it handles requests from the next handshake and the next request on. */
export type BeginService = () => void;

export interface ListenerOptions {
  /** An empty host stands for all interfaces. */
  readonly bind: BindAddress;
  /** 0 lets the system choose. Ignored for Unix sockets and descriptors. */
  readonly port: number;
  readonly inherited: InheritedSockets;
  readonly ticketKeys: TicketKeys;
  readonly measures: ConnectionMeasures;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Time of silence after which the system probes a peer. A dead peer is detected 10 s later. */
const KEEP_ALIVE_MS = 30_000;
/**
 * Small pieces are sent at once: Nagle's algorithm would hold an event back until the one before it is
 * acknowledged.
 */
const SOCKET_OPTIONS = { noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS };

/** How long a connection without any data is kept when its listener closes. */
const LATE_REQUEST_MS = 1_000;
/** Connections that wait for a service. Further connections are closed. */
const MAX_HELD_CONNECTIONS = 1_000;

/**
 * An open port for HTTP/1.1 and, with TLS, HTTP/2. The service decides whether TLS is used, so a reload can
 * change it. The port is bound before a configuration is complete, because binding may fail. Connections wait
 * until there is a service.
 */
export class Listener {
  #options: ListenerOptions;
  readonly #log: Logger;
  readonly #clock: Clock;
  /** null while another listener has the port. */
  #server: Server | null = null;
  /** Servers that have stopped accepting, until their last connection is gone. */
  readonly #closing: Promise<void>[] = [];
  /** null without TLS. */
  #tls: TlsEndpoint | null = null;
  readonly #sockets = new Set<Socket>();
  /** Connections that were accepted before there was a service. */
  readonly #held = new Set<Socket>();
  readonly #peers = new Peers();
  /** Whether connections are being rejected; logged once each time. */
  #isFull = false;
  /** The newest is the last. The older ones serve their existing connections. */
  readonly #protocols: Protocols[] = [];
  #service: Service | null = null;
  #settings: ExchangeSettings | null = null;

  private constructor(options: ListenerOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#clock = options.clock;
  }

  /**
   * Binds the port.
   *
   * @throws HubgateError `listen-failed`; its message has the fix for the usual causes
   */
  static async open(options: ListenerOptions): Promise<Listener> {
    const listener = new Listener(options);
    await listener.resume();
    return listener;
  }

  /**
   * Listens again after {@link suspend}.
   *
   * @throws HubgateError `listen-failed`
   */
  async resume(): Promise<void> {
    const { bind, inherited } = this.#options;
    const server =
      bind.kind === 'fd'
        ? inherited.serverOf(bind.fd, SOCKET_OPTIONS)
        : createServer(SOCKET_OPTIONS);
    server.on('connection', this.#accept);
    await bindServer(server, this.#options);
    // The queue of the system has one place more than it is asked for. That of a descriptor may be longer.
    if (bind.kind === 'host') passOptionsOn(server, BACKLOG + 1, KEEP_ALIVE_MS);
    server.on('error', this.#onServerError).ref();
    this.#server = server;
  }

  /** Releases the port for another listener at once. Connections stay open. */
  suspend(): void {
    const server = this.#server;
    this.#server = null;
    if (server === null) return;
    if (this.#options.bind.kind !== 'fd') {
      this.#closing.push(new Promise((resolve) => server.close(() => resolve())));
      return;
    }
    server.off('connection', this.#accept).off('error', this.#onServerError).unref();
    for (const socket of this.#sockets) {
      this.#closing.push(new Promise((resolve) => socket.once('close', () => resolve())));
    }
  }

  /** Prepares the TLS endpoint for a service that uses TLS. */
  async prepareTls(): Promise<void> {
    if (this.#tls !== null) return;
    const { ticketKeys, measures, clock, log } = this.#options;
    const tls = new TlsEndpoint({
      certificates: () => this.#service?.certificates ?? null,
      protocols: () => this.#service?.limits.protocols ?? [],
      ticketKeys,
      measures,
      onSecure: (socket, protocol) => this.#speak(socket, protocol),
      clock,
      log,
    });
    await tls.open();
    this.#tls = tls;
  }

  /** The bound port; null for a Unix socket. */
  get port(): number | null {
    const address = this.#server?.address() ?? null;
    return address === null || typeof address === 'string' ? null : (address.port ?? null);
  }

  /**
   * Prepares a service without any visible change yet: several listeners change together or not at all.
   *
   * @param bind the same address; only the mode of a Unix socket may differ
   * @param fallback certificate for clients that send no server name
   * @throws the error of Node, if it cannot create a server
   */
  ready(bind: BindAddress, service: Service, fallback: Certificate | null): BeginService {
    const { clientAddress, limits, policies } = service;
    const beginTls = policies === null ? null : this.#tls?.ready(policies, fallback);
    const before = this.#service;
    const changesSecurity = before !== null && (policies === null) !== (before.policies === null);
    const protocols = this.#protocolsFor(limits, changesSecurity);
    return () => {
      this.#service = service;
      this.#changeMode(bind);
      const { readBodyMs } = limits.timeouts;
      const silence = readBodyMs === 0 ? null : { limitMs: readBodyMs, clock: this.#clock };
      this.#settings = { log: this.#log, clientAddress, keeps: limits, silence };
      if (policies === null) this.#endTls();
      else beginTls?.();
      if (protocols !== null) this.#renewProtocols(protocols, changesSecurity);
      for (const socket of this.#held) {
        this.#held.delete(socket);
        this.#receive(socket, service);
      }
    };
  }

  #changeMode(bind: BindAddress): void {
    const before = this.#options.bind;
    this.#options = { ...this.#options, bind };
    if (bind.kind !== 'unix' || before.kind !== 'unix' || bind.mode === before.mode) return;
    try {
      chmodSync(bind.path, bind.mode);
    } catch (error) {
      this.#log.error('The mode of a socket did not change', { error: messageOf(error) });
    }
  }

  #endTls(): void {
    this.#tls?.close();
    this.#tls = null;
  }

  /** Returns null if the active protocols have the same limits. */
  #protocolsFor(limits: ServerOptions, changesSecurity: boolean): Protocols | null {
    const newest = this.#protocols.at(-1);
    const sameLimits = JSON.stringify(newest?.limits) === JSON.stringify(limits);
    if (sameLimits && !changesSecurity) return null;
    return new Protocols(
      limits,
      {
        settings: () => this.#settings,
        take: (exchange, handshake) => this.#take(exchange, handshake),
      },
      this.#clock,
      this.#log,
    );
  }

  /** Connections that still use the old security of the port finish their current requests. */
  #renewProtocols(next: Protocols, changesSecurity: boolean): void {
    const newest = this.#protocols.at(-1);
    newest?.retire(() => this.#protocols.splice(this.#protocols.indexOf(newest), 1));
    if (changesSecurity) newest?.drain();
    this.#protocols.push(next);
  }

  #take(exchange: Exchange, handshake: Handshake | null): void {
    const service = this.#service;
    // A request that arrived just when the port changed between TLS and plain text (RFC 9110 §15.5.20).
    if (service !== null && (handshake === null) !== (service.policies === null)) {
      answerError(exchange, 421);
      // RFC 9110 §9.3.7: it concerns the server in general, and no site.
    } else if (exchange.target === '*') answer(exchange, 200, {});
    else service?.handle(exchange, handshake);
  }

  /**
   * Stops accepting, lets requests in progress finish, and resolves when the last connection is gone. HTTP/2
   * clients are asked to leave (GOAWAY).
   */
  async close(): Promise<void> {
    this.suspend();
    this.#tls?.close();
    for (const protocols of this.#protocols) protocols.drain();
    for (const socket of this.#held) socket.destroy();
    // A request on a connection that was just accepted may still be in transit or unread.
    const cut = this.#clock.after(LATE_REQUEST_MS, () => {
      for (const socket of this.#sockets) if (socket.bytesRead === 0) socket.destroy();
    });
    await Promise.all(this.#closing);
    cut();
  }

  /** Cuts every connection. */
  destroy(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  readonly #onServerError = (error: Error): void => {
    this.#log.error('A listener failed', { error: messageOf(error) });
  };

  readonly #accept = (socket: Socket): void => {
    const { measures } = this.#options;
    measures.accepted += 1;
    measures.open += 1;
    this.#sockets.add(socket);
    socket.on('close', this.#onClose).on('error', this.#onError);
    if (this.#service !== null) this.#receive(socket, this.#service);
    else if (this.#held.size < MAX_HELD_CONNECTIONS) this.#held.add(socket);
    else this.#turnAway(socket, 'not_ready');
  };

  readonly #onClose = sharedListener((socket) => {
    this.#options.measures.open -= 1;
    forgetDeadline(socket);
    this.#sockets.delete(socket);
    this.#held.delete(socket);
  });

  readonly #onError = (error: Error): void => {
    this.#log.debug('A connection failed', { error: messageOf(error) });
  };

  #turnAway(socket: Socket, reason: keyof ConnectionMeasures['turnedAway']): void {
    this.#options.measures.turnedAway[reason] += 1;
    socket.destroy();
  }

  #receive(socket: Socket, service: Service): void {
    if (this.#turnsAway(service.limits)) return this.#turnAway(socket, 'full');
    expectFirstRequest(socket, service.limits.timeouts.readHeaderMs, this.#clock);
    if (!service.sendsProxyHeader(socket.remoteAddress ?? '')) {
      return this.#admit(socket, null, service);
    }
    readProxyHeader(socket, {
      timeoutMs: service.limits.timeouts.readHeaderMs,
      clock: this.#clock,
      onHeader: ({ source }) => this.#admit(socket, source, service),
      onRefuse: (error) => this.#refuseHeader(socket, error),
    });
  }

  /** Logs the first, second, fourth, eighth … time: often the sender is not configured to send a header at all. */
  #refuseHeader(socket: Socket, error: HubgateError): void {
    const { remoteAddress } = socket;
    this.#turnAway(socket, 'proxy_header');
    const times = this.#options.measures.turnedAway.proxy_header;
    if (!isPowerOfTwo(times)) return;
    this.#log.warn('A connection without a valid PROXY protocol header was rejected', {
      remoteAddress,
      times,
      error: error.message,
      fix: 'let the sender send the header, or remove its address from proxy_protocol',
    });
  }

  /** Accepts a connection whose peer is known; `named` is the peer in the PROXY protocol header. */
  #admit(socket: Socket, named: Peer | null, { limits, policies }: Service): void {
    const { address } = this.#peers.add(socket, named);
    const { maxConnectionsPerClient: most } = limits;
    // The clients of a Unix socket cannot be told apart.
    if (most > 0 && address !== '' && this.#peers.connectionsOf(address) > most) {
      this.#log.debug('A client has too many connections', { address });
      this.#turnAway(socket, 'client');
    } else if (policies === null) this.#speak(socket, 'http/1.1');
    else if (this.#tls === null) socket.destroy();
    else this.#tls.accept(socket);
  }

  #turnsAway({ maxConnections }: ServerOptions): boolean {
    const wasFull = this.#isFull;
    this.#isFull = maxConnections > 0 && this.#sockets.size > maxConnections;
    if (this.#isFull && !wasFull) {
      this.#log.warn('A listener is full and rejects connections', { maxConnections });
    }
    return this.#isFull;
  }

  #speak(socket: Socket, protocol: Protocol): void {
    const protocols = this.#protocols.at(-1);
    if (protocols === undefined || !this.#peers.mark(socket)) socket.destroy();
    else if (protocol === 'h2') protocols.acceptHttp2(socket);
    else protocols.acceptHttp1(socket);
  }
}
