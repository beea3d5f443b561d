import type { Socket } from 'node:net';
import {
  createServer,
  type SecureContext,
  type SecureContextOptions,
  type Server,
  type TLSSocket,
} from 'node:tls';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { CertificateSource } from '../tls/certificates.ts';

/** What is spoken on a connection, as ALPN names it (RFC 7301). */
export type Protocol = 'h2' | 'http/1.1';

export interface TlsEndpointOptions {
  /** Asked at each handshake; null where no configuration is in force. */
  readonly certificates: () => CertificateSource | null;
  readonly protocols: () => readonly ('h1' | 'h2')[];
  /** Takes a connection whose handshake is done. */
  readonly onSecure: (socket: TLSSocket, protocol: Protocol) => void;
  readonly log: Logger;
}

/** Limits of a TLS handshake, before any configuration is asked. */
const HANDSHAKE_TIMEOUT_MS = 10_000;

/**
 * The TLS side of a listener, fed with connections that it has accepted. The protocol is chosen by
 * ALPN here rather than by Node's `allowHTTP1`, which ignores the header limit on Node 20.
 */
export class TlsEndpoint {
  readonly #options: TlsEndpointOptions;
  /** Never listens: it is given each connection. */
  readonly #server: Server;

  constructor(options: TlsEndpointOptions) {
    this.#options = options;
    this.#server = createServer({
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      ALPNCallback: ({ protocols }) => this.#choose(protocols),
      SNICallback: (serverName, done) => {
        this.#context(serverName).then(
          (context) => done(null, context),
          (error: unknown) => done(error instanceof Error ? error : new Error(String(error))),
        );
      },
    });
    this.#server.on('secureConnection', (socket) => {
      socket.on('error', (error) => this.#failed('A connection failed', error));
      options.onSecure(socket, socket.alpnProtocol === 'h2' ? 'h2' : 'http/1.1');
    });
    this.#server.on('tlsClientError', (error) => this.#failed('A TLS handshake failed', error));
  }

  /** Certificate for clients that send no server name, from the next handshake on. */
  set fallback(context: SecureContextOptions) {
    this.#server.setSecureContext(context);
  }

  /** Begins the handshake. */
  accept(socket: Socket): void {
    this.#server.emit('connection', socket);
  }

  #choose(offered: readonly string[]): Protocol | undefined {
    if (this.#options.protocols().includes('h2') && offered.includes('h2')) return 'h2';
    return offered.includes('http/1.1') ? 'http/1.1' : undefined;
  }

  async #context(serverName: string): Promise<SecureContext> {
    const certificates = this.#options.certificates();
    if (certificates === null) {
      throw new HubgateError('no-certificate', 'This port has no certificates');
    }
    return certificates.contextFor(serverName);
  }

  #failed(message: string, error: Error): void {
    this.#options.log.debug(message, { error: messageOf(error) });
  }
}
