import { createServer, type Server, type Socket } from 'node:net';
import type { BindAddress, ServerOptions } from '../config/config.ts';
import type { Exchange } from '../http/exchange.ts';
import type { AddressSet } from '../http/forwarded.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Certificate } from '../tls/certificate.ts';
import type { CertificateSource } from '../tls/certificates.ts';
import type { TicketKeys } from '../tls/ticket-keys.ts';
import { bindServer } from './bound-server.ts';
import type { ExchangeSettings } from './exchange-settings.ts';
import { expectFirstRequest, forgetDeadline } from './first-request.ts';
import { type Peer, Peers } from './peers.ts';
import { Protocols } from './protocols.ts';
import { readProxyHeader } from './proxy-protocol.ts';
import { type HandshakePolicies, type Protocol, TlsEndpoint } from './tls-endpoint.ts';

/** What a listener does with what it accepts. A reload replaces it in one step. */
export interface Service {
  /**
   * Answers one exchange; never throws.
   *
   * @param policyId of the handshake of its connection; null without TLS
   */
  readonly handle: (exchange: Exchange, policyId: string | null) => void;
  /** null on a listener without TLS, like the policies. */
  readonly certificates: CertificateSource | null;
  readonly policies: HandshakePolicies | null;
  readonly limits: ServerOptions;
  /** The peers whose connections begin with a PROXY protocol header. */
  readonly sendsProxyHeader: AddressSet;
  /** The client's address behind trusted proxies; null for the peer's own. */
  readonly clientAddress: ((headers: HeaderList, peer: string) => string) | null;
}

export interface ListenerOptions {
  /** An empty host stands for all interfaces. */
  readonly bind: BindAddress;
  /** 0 lets the system choose. Only matters to hosts. */
  readonly port: number;
  readonly secure: boolean;
  readonly ticketKeys: TicketKeys;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Small pieces leave at once (Nagle's algorithm would hold an event back until the one before it is
 * acknowledged), and the system asks silent peers whether they still live; a dead one is gone in 40 s.
 */
const SOCKET_OPTIONS = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 30_000 };

/** An open port that speaks HTTP/1.1 and, with TLS, HTTP/2. */
export class Listener {
  readonly #log: Logger;
  readonly #server: Server;
  /** null where no TLS is spoken. */
  readonly #tls: TlsEndpoint | null;
  readonly #clock: Clock;
  readonly #sockets = new Set<Socket>();
  readonly #peers = new Peers();
  /** Whether connections are turned away; said once each time. */
  #isFull = false;
  /** The newest last; older ones serve the connections that they have. */
  readonly #protocols: Protocols[] = [];
  #service: Service | null = null;
  #settings: ExchangeSettings | null = null;

  private constructor(options: ListenerOptions) {
    this.#log = options.log;
    this.#clock = options.clock;
    this.#tls = options.secure
      ? new TlsEndpoint({
          certificates: () => this.#service?.certificates ?? null,
          protocols: () => this.#service?.limits.protocols ?? [],
          ticketKeys: options.ticketKeys,
          onSecure: (socket, protocol) => this.#speak(socket, protocol),
          clock: options.clock,
          log: options.log,
        })
      : null;
    this.#server = createServer(SOCKET_OPTIONS, (socket) => this.#accept(socket));
  }

  /**
   * Binds the port.
   *
   * @throws HubgateError `listen-failed`, saying what to do about the usual causes
   */
  static async open(options: ListenerOptions): Promise<Listener> {
    const listener = new Listener(options);
    const server = listener.#server;
    await bindServer(server, options);
    server.on('error', (error) => {
      options.log.error('A listener failed', { error: messageOf(error) });
    });
    await listener.#tls?.open();
    return listener;
  }

  /** Port that is bound; null for a Unix socket. */
  get port(): number | null {
    const address = this.#server.address();
    return address === null || typeof address === 'string' ? null : (address.port ?? null);
  }

  /**
   * From the next handshake and the next request on, this service answers.
   *
   * @param fallback certificate for clients that send no server name
   */
  serve(service: Service, fallback: Certificate | null): void {
    this.#service = service;
    const { clientAddress, limits } = service;
    const { readBodyMs } = limits.timeouts;
    const silence = readBodyMs === 0 ? null : { limitMs: readBodyMs, clock: this.#clock };
    this.#settings = { log: this.#log, clientAddress, silence };
    if (service.policies !== null) this.#tls?.serve(service.policies, fallback);
    const newest = this.#protocols.at(-1);
    if (JSON.stringify(newest?.limits) === JSON.stringify(limits)) return;
    newest?.retire(() => this.#protocols.splice(this.#protocols.indexOf(newest), 1));
    this.#protocols.push(
      new Protocols(
        limits,
        {
          settings: () => this.#settings,
          take: (exchange, policyId) => this.#service?.handle(exchange, policyId),
        },
        this.#clock,
        this.#log,
      ),
    );
  }

  /**
   * Stops accepting, lets what is in flight finish, and resolves when the last connection is gone.
   * HTTP/2 clients are told to go (GOAWAY).
   */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#tls?.close();
    for (const protocols of this.#protocols) protocols.drain();
    for (const socket of this.#sockets) if (socket.bytesRead === 0) socket.destroy();
    await closed;
    for (const protocols of this.#protocols) protocols.close();
  }

  /** Cuts every connection. */
  destroy(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => {
      forgetDeadline(socket);
      this.#sockets.delete(socket);
    });
    socket.on('error', (error) => {
      this.#log.debug('A connection failed', { error: messageOf(error) });
    });
    const service = this.#service;
    if (service === null || this.#turnsAway(service.limits)) {
      socket.destroy();
      return;
    }
    expectFirstRequest(socket, service.limits.timeouts.readHeaderMs, this.#clock);
    if (!service.sendsProxyHeader(socket.remoteAddress ?? '')) {
      this.#admit(socket, null, service);
      return;
    }
    readProxyHeader(socket, {
      timeoutMs: service.limits.timeouts.readHeaderMs,
      clock: this.#clock,
      onHeader: ({ source }) => this.#admit(socket, source, service),
      onRefuse: (error) => {
        const { remoteAddress } = socket;
        this.#log.debug('A connection was refused', { error: error.message, remoteAddress });
      },
    });
  }

  /** Takes a connection whose other end is known; `named` is what the PROXY protocol says of it. */
  #admit(socket: Socket, named: Peer | null, { limits }: Service): void {
    const { address } = this.#peers.add(socket, named);
    const { maxConnectionsPerClient: most } = limits;
    // A Unix socket does not tell its clients apart.
    if (most > 0 && address !== '' && this.#peers.connectionsOf(address) > most) {
      this.#log.debug('A client has too many connections', { address });
      socket.destroy();
    } else if (this.#tls === null) this.#speak(socket, 'http/1.1');
    else this.#tls.accept(socket);
  }

  #turnsAway({ maxConnections }: ServerOptions): boolean {
    const wasFull = this.#isFull;
    this.#isFull = maxConnections > 0 && this.#sockets.size > maxConnections;
    if (this.#isFull && !wasFull) {
      this.#log.warn('A listener is full and turns connections away', { maxConnections });
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
