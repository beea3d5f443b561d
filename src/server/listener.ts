import { randomUUID } from 'node:crypto';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
import type { ServerOptions } from '../config/config.ts';
import type { Exchange, UpgradeRequest } from '../http/exchange.ts';
import { NodeExchange, type NodeRequest, type NodeResponse } from '../http/node-exchange.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { CertificateSource } from '../tls/certificates.ts';
import { Protocols } from './protocols.ts';
import { type Protocol, TlsEndpoint } from './tls-endpoint.ts';

/** What a listener does with what it accepts. A reload replaces it in one step. */
export interface Service {
  /** Answers one exchange; never throws. */
  readonly handle: (exchange: Exchange) => void;
  /** null on a listener without TLS. */
  readonly certificates: CertificateSource | null;
  readonly limits: ServerOptions;
  /** The client's address behind trusted proxies; null for the connection's own. */
  readonly clientAddress: (request: NodeRequest) => string | null;
}

export interface ListenerOptions {
  /** Interface; empty for all. */
  readonly host: string;
  /** 0 lets the system choose. */
  readonly port: number;
  readonly secure: boolean;
  readonly log: Logger;
}

/** The system asks silent peers whether they still live; a dead one is gone in 40 s. */
const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelay: 30_000 };

/** An open port that speaks HTTP/1.1 and, with TLS, HTTP/2. */
export class Listener {
  readonly #log: Logger;
  readonly #server: Server;
  /** null where no TLS is spoken. */
  readonly #tls: TlsEndpoint | null;
  readonly #sockets = new Set<Socket>();
  /** The newest last; older ones serve the connections that they have. */
  readonly #protocols: Protocols[] = [];
  #service: Service | null = null;

  private constructor(options: ListenerOptions) {
    this.#log = options.log;
    this.#tls = options.secure
      ? new TlsEndpoint({
          certificates: () => this.#service?.certificates ?? null,
          protocols: () => this.#service?.limits.protocols ?? [],
          onSecure: (socket, protocol) => this.#speak(socket, protocol),
          log: options.log,
        })
      : null;
    this.#server = createServer(KEEP_ALIVE, (socket) => this.#accept(socket));
  }

  /**
   * Binds the port.
   *
   * @throws HubgateError `listen-failed`, saying what to do about the usual causes
   */
  static async open(options: ListenerOptions): Promise<Listener> {
    const listener = new Listener(options);
    const server = listener.#server;
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        const host = options.host === '' ? undefined : options.host;
        server.listen({ host, port: options.port }, resolve);
      });
    } catch (cause) {
      throw new HubgateError('listen-failed', listenAdvice(options, cause), { cause });
    }
    server.on('error', (error) => {
      options.log.error('A listener failed', { error: messageOf(error) });
    });
    return listener;
  }

  /** Port that is bound. */
  get port(): number {
    // A TCP server that listens has an AddressInfo; strings are for Unix sockets.
    return (this.#server.address() as AddressInfo).port;
  }

  /**
   * From the next handshake and the next request on, this service answers.
   *
   * @param fallback certificate for clients that send no server name
   */
  serve(service: Service, fallback: SecureContextOptions | null): void {
    this.#service = service;
    if (this.#tls !== null && fallback !== null) this.#tls.fallback = fallback;
    const newest = this.#protocols.at(-1);
    if (JSON.stringify(newest?.limits) === JSON.stringify(service.limits)) return;
    this.#protocols.push(
      new Protocols(service.limits, (...read) => this.#exchange(...read), this.#log),
    );
  }

  /**
   * Stops accepting, lets what is in flight finish, and resolves when the last connection is gone.
   * HTTP/2 clients are told to go (GOAWAY).
   */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const protocols of this.#protocols) protocols.drain();
    for (const socket of this.#sockets) if (socket.bytesRead === 0) socket.destroy();
    await closed;
  }

  /** Cuts every connection. */
  destroy(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    socket.on('error', (error) => {
      this.#log.debug('A connection failed', { error: messageOf(error) });
    });
    if (this.#tls === null) this.#speak(socket, 'http/1.1');
    else this.#tls.accept(socket);
  }

  #speak(socket: Socket, protocol: Protocol): void {
    const protocols = this.#protocols.at(-1);
    if (protocols === undefined) socket.destroy();
    else if (protocol === 'h2') protocols.acceptHttp2(socket);
    else protocols.acceptHttp1(socket);
  }

  #exchange(request: NodeRequest, response: NodeResponse, upgrade: UpgradeRequest | null): void {
    const service = this.#service;
    if (service === null) {
      request.socket.destroy();
      return;
    }
    // RFC 9112 §3.2: which site is meant must not depend on who reads the message.
    if (hostFields(request) > 1) {
      response.statusCode = 400;
      response.setHeader('connection', 'close');
      response.end();
      return;
    }
    const id = randomUUID();
    const log = this.#log.child({ request: id });
    const clientAddress = service.clientAddress(request);
    service.handle(
      new NodeExchange(request, response, { id, log, clientAddress, peer: null, upgrade }),
    );
  }
}

function hostFields({ rawHeaders, httpVersionMajor }: NodeRequest): number {
  if (httpVersionMajor === 2) return 0;
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i]?.toLowerCase() === 'host') count += 1;
  }
  return count;
}

function listenAdvice({ host, port }: ListenerOptions, cause: unknown): string {
  const where = `port ${port}${host === '' ? '' : ` of ${host}`}`;
  switch (codeOf(cause)) {
    case 'EADDRINUSE':
      return `Cannot listen on ${where}: another program has it; stop that one or choose another port`;
    case 'EACCES':
      return `Cannot listen on ${where}: ports below 1024 need a privilege; set http_port and https_port, or give the node binary cap_net_bind_service`;
    case 'EADDRNOTAVAIL':
      return `Cannot listen on ${where}: this machine does not have that address`;
    default:
      return `Cannot listen on ${where}: ${messageOf(cause)}`;
  }
}
