// OpenSSL has one certificate per key type, and would present the server's own certificate instead of the
// selected one. So clients that send a name reach a TLS server without a certificate of its own.

import type { Socket } from 'node:net';
import {
  createSecureContext,
  createServer,
  type SecureContext,
  type SecureContextOptions,
  type Server,
  type TLSSocket,
} from 'node:tls';
import { plainAddress } from '../http/forwarded.ts';
import { setNewest } from '../kernel/collections.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { Certificate } from '../tls/certificate.ts';
import type { CertificateSource } from '../tls/certificates.ts';
import { type HandshakePolicy, refusalReason } from '../tls/handshake-policy.ts';
import type { TicketKeys } from '../tls/ticket-keys.ts';
import { ChallengeHandshakes, readClientHello } from './client-hello.ts';
import {
  type ConnectionMeasures,
  handshakeOf,
  refuseConnection,
  rememberHandshake,
} from './connection-policy.ts';
import { giveConnection } from '../kernel/node-internals.ts';

/** The protocol of a connection, with its ALPN name (RFC 7301). */
export type Protocol = 'h2' | 'http/1.1';

/** The preferred one first. */
const PROTOCOLS: readonly Protocol[] = ['h2', 'http/1.1'];

/** The handshake policies of the active configuration. */
export interface HandshakePolicies {
  /** All policies that a connection can get; at least one. */
  readonly all: readonly HandshakePolicy[];
  /** The policy for a server name or, if the client sends none, for its destination address. */
  policyFor(name: string): HandshakePolicy;
}

export interface TlsEndpointOptions {
  /** Called for each handshake; returns null if no configuration is active. */
  readonly certificates: () => CertificateSource | null;
  readonly protocols: () => readonly ('h1' | 'h2')[];
  readonly ticketKeys: Pick<TicketKeys, 'follow'>;
  readonly measures: ConnectionMeasures;
  /** Takes a connection whose handshake is complete. */
  readonly onSecure: (socket: TLSSocket, protocol: Protocol) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * The two servers of a policy. OpenSSL keeps one certificate for each key type. If a server has a certificate
 * of its own, OpenSSL presents it instead of the selected one when the key types differ. So the server for
 * clients that send a name has none.
 */
interface PolicyServers {
  readonly named: Server;
  readonly unnamed: Server;
}

/** The text for a client that should have used TLS. */
const NEEDS_TLS = 'Client sent an HTTP request to an HTTPS server.\n';
/** Limit of a TLS handshake, before any configuration applies. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** How often the certificate for clients without a server name is requested again. */
const FALLBACK_REFRESH_MS = 60 * 60 * 1000;

/**
 * The TLS side of a listener, which passes its connections to it. The protocol is selected by ALPN here,
 * because Node's `allowHTTP1` ignores the header limit on Node 20.
 */
export class TlsEndpoint {
  readonly #options: TlsEndpointOptions;
  /** By policy. They never listen; each connection is passed to one of them. */
  #servers: ReadonlyMap<string, PolicyServers> = new Map();
  readonly #challenges = new ChallengeHandshakes();
  #policies: HandshakePolicies | null = null;
  #ticketKeys: Buffer | null = null;
  #stopFollowing: () => void = () => {};
  #stopRefreshing: () => void = () => {};
  #isClosed = false;

  constructor(options: TlsEndpointOptions) {
    this.#options = options;
  }

  /** Opens what outlives a configuration. */
  async open(): Promise<void> {
    this.#stopFollowing = await this.#options.ticketKeys.follow((keys) => {
      this.#ticketKeys = keys;
      for (const { named, unnamed } of this.#servers.values()) {
        named.setTicketKeys(keys);
        unnamed.setTicketKeys(keys);
      }
    });
  }

  /** Ends all periodic work. Handshakes that have begun may finish. */
  close(): void {
    this.#isClosed = true;
    this.#stopFollowing();
    this.#stopRefreshing();
  }

  /**
   * Creates the servers. The returned function activates them for the next handshake.
   *
   * @param fallback certificate for clients that send no server name
   * @throws the error of Node, if it cannot create a server with a policy or with the certificate
   */
  ready(policies: HandshakePolicies, fallback: Certificate | null): () => void {
    const servers = new Map(
      policies.all.map((one) => {
        const named = this.#createServer(one, null);
        return [one.id, { named, unnamed: this.#createServer(one, fallback) }];
      }),
    );
    return () => {
      this.#policies = policies;
      this.#servers = servers;
      this.#follow(policies, fallback);
    };
  }

  /** Requests the fallback certificate again when it may have changed. */
  #follow(policies: HandshakePolicies, fallback: Certificate | null): void {
    this.#stopRefreshing();
    const refresh = (): void => void this.#refresh(policies, fallback);
    const cancel = this.#options.clock.after(FALLBACK_REFRESH_MS, refresh);
    const unfollow = this.#options.certificates()?.onFallback(refresh);
    this.#stopRefreshing = () => {
      cancel();
      unfollow?.();
    };
  }

  /** Begins the handshake. */
  accept(socket: Socket): void {
    readClientHello(socket, this.#options.clock, ({ serverName }, isHttp) => {
      if (isHttp) return this.#refuseHttp(socket);
      const policy = this.#policies?.policyFor(
        serverName ?? plainAddress(socket.localAddress ?? ''),
      );
      const servers = policy && this.#servers.get(policy.id);
      handOver(socket, serverName === null ? servers?.unnamed : servers?.named);
    });
  }

  /** The response is without TLS, like the request. */
  #refuseHttp(socket: Socket): void {
    this.#options.measures.failedHandshakes += 1;
    this.#options.log.debug('A client sent an HTTP request to a port for HTTPS', {
      remoteAddress: socket.remoteAddress,
    });
    refuseConnection(socket, this.#options.clock, 400, NEEDS_TLS);
  }

  #createServer(policy: HandshakePolicy, fallback: Certificate | null): Server {
    // Node calls both with the connection as `this`.
    const choose = (socket: TLSSocket, offered: readonly string[]) =>
      this.#choose(socket, offered, policy);
    const certificate = (socket: TLSSocket, serverName: string) =>
      this.#certificate(socket, serverName);
    const contexts = new SecureContexts(policy.options);
    const server = createServer({
      ...policy.options,
      ...fallback,
      // Node's default would differ between processes, and sessions would not be resumed.
      sessionIdContext: policy.id,
      ...(this.#ticketKeys === null ? {} : { ticketKeys: this.#ticketKeys }),
      requestCert: policy.clientAuth !== null,
      // Clients are refused below, with a reason.
      rejectUnauthorized: false,
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      ALPNCallback: function (this: TLSSocket, { protocols }) {
        return choose(this, protocols);
      },
      SNICallback: function (this: TLSSocket, serverName, done) {
        certificate(this, serverName).then(
          (certificate) => done(null, contexts.contextFor(serverName, certificate)),
          (error: unknown) => done(error instanceof Error ? error : new Error(String(error))),
        );
      },
    });
    server.on('secureConnection', (socket) => this.#secured(socket, policy));
    server.on('tlsClientError', (error) => {
      this.#options.measures.failedHandshakes += 1;
      this.#failed('A TLS handshake failed', error);
    });
    return server;
  }

  #secured(socket: TLSSocket, policy: HandshakePolicy): void {
    socket.on('error', (error) => this.#failed('A connection failed', error));
    if (this.#challenges.isOver(socket)) return socket.destroySoon();
    const reason = policy.clientAuth === null ? null : refusalReason(socket, policy.clientAuth);
    if (reason !== null) {
      const { servername } = socket;
      this.#options.log.debug('A client was rejected', { reason, servername });
      socket.destroy();
      return;
    }
    rememberHandshake(socket, policy);
    const protocol = socket.alpnProtocol === 'h2' ? 'h2' : 'http/1.1';
    const { measures, onSecure } = this.#options;
    measures.handshake(handshakeOf(socket)?.tlsVersion ?? '', socket.isSessionReused(), protocol);
    onSecure(socket, protocol);
  }

  #choose(
    socket: TLSSocket,
    offered: readonly string[],
    { alpn }: HandshakePolicy,
  ): string | undefined {
    const challenge = this.#challenges.protocol(socket, offered);
    if (challenge !== null) return challenge === 'refused' ? undefined : challenge;
    const speaksHttp2 = this.#options.protocols().includes('h2');
    const wanted = alpn.length === 0 ? PROTOCOLS : alpn;
    return wanted.find((each) => offered.includes(each) && (each !== 'h2' || speaksHttp2));
  }

  async #certificate(socket: TLSSocket, serverName: string): Promise<Certificate> {
    const certificates = this.#options.certificates();
    if (certificates === null) {
      throw new HubgateError('no-certificate', 'This port has no certificates');
    }
    return this.#challenges.certificate(socket, serverName, certificates);
  }

  /** Certificates are renewed while a configuration stays active. */
  async #refresh(policies: HandshakePolicies, before: Certificate | null): Promise<void> {
    try {
      const fallback = (await this.#options.certificates()?.fallback()) ?? before;
      // In the meantime, another configuration may have become active, or the endpoint may have closed.
      if (this.#policies === policies && !this.#isClosed) this.ready(policies, fallback)();
    } catch (error) {
      this.#options.log.warn('The certificate for clients without a server name is not renewed', {
        error: messageOf(error),
      });
      if (this.#policies === policies && !this.#isClosed) this.#follow(policies, before);
    }
  }

  #failed(message: string, error: Error): void {
    this.#options.log.debug(message, { error: messageOf(error) });
  }
}

/** Without a server, no configuration is active. */
function handOver(socket: Socket, server: Server | undefined): void {
  if (server === undefined) socket.destroy();
  else giveConnection(server, socket);
}

/** Contexts and server names that are kept. A catch-all site has a certificate for each requested name. */
export const MAX_CONTEXTS = 1_000;

/**
 * The secure contexts of one handshake policy, one for each certificate. Creating one parses the chain and
 * the key, which costs more than the rest of the handshake. A context stays in memory as long as any
 * connection that was created with it.
 */
export class SecureContexts {
  readonly #options: SecureContextOptions;
  readonly #create: (options: SecureContextOptions) => SecureContext;
  /** By chain. The oldest is the first. */
  readonly #contexts = new Map<string, SecureContext>();
  /** The chain that was last presented for a server name. */
  readonly #chains = new Map<string, string>();

  /** `create` defaults to Node's own function. */
  constructor(
    options: SecureContextOptions,
    create: (options: SecureContextOptions) => SecureContext = createSecureContext,
  ) {
    this.#options = options;
    this.#create = create;
  }

  /** Releases the context of the previous certificate of the name. */
  contextFor(serverName: string, { cert, key }: Certificate): SecureContext {
    const before = this.#chains.get(serverName);
    if (before !== undefined && before !== cert) this.#contexts.delete(before);
    if (before !== cert) setNewest(this.#chains, serverName, cert, MAX_CONTEXTS);
    const known = this.#contexts.get(cert);
    if (known !== undefined) return known;
    const context = this.#create({ ...this.#options, cert, key });
    setNewest(this.#contexts, cert, context, MAX_CONTEXTS);
    return context;
  }
}
