import { createSecureContext, type TLSSocket } from 'node:tls';
import { HubgateError } from '../kernel/error.ts';
import type { Certificate } from '../tls/certificate.ts';
import type { CertificateSource } from '../tls/certificates.ts';

/** The only protocol that an authority offers when it validates a TLS-ALPN-01 challenge (RFC 8737 §4). */
export const ACME_TLS = 'acme-tls/1';

/**
 * Handshakes in which an authority validates a TLS-ALPN-01 challenge. OpenSSL selects the protocol before the
 * certificate in TLS 1.3, but after it in TLS 1.2. For TLS 1.2 the certificate of the challenge is prepared
 * in addition to the ordinary one until the protocol is known.
 */
export class ChallengeHandshakes {
  /** Connections that asked for the protocol before their certificate was selected. */
  readonly #asked = new WeakSet<TLSSocket>();
  /** Connections whose certificate was selected first, each with the certificate of a pending challenge. */
  readonly #prepared = new WeakMap<TLSSocket, Certificate | null>();
  /** Connections that got the certificate of a challenge because there is no ordinary one yet. */
  readonly #provisional = new WeakSet<TLSSocket>();

  /** Selects the protocol; null if the handshake is not one of an authority. */
  protocol(socket: TLSSocket, offered: readonly string[]): typeof ACME_TLS | 'refused' | null {
    if (offered.length !== 1 || offered[0] !== ACME_TLS) return null;
    const answer = this.#prepared.get(socket);
    if (answer === null) return 'refused';
    if (answer === undefined) this.#asked.add(socket);
    else socket.setKeyCert(createSecureContext(answer));
    return ACME_TLS;
  }

  /**
   * Selects the certificate.
   *
   * @throws HubgateError `no-challenge` if none is pending, or the error of the source
   */
  async certificate(
    socket: TLSSocket,
    serverName: string,
    source: CertificateSource,
  ): Promise<Certificate> {
    if (this.#asked.has(socket)) {
      const answer = await source.challengeFor(serverName);
      if (answer !== null) return answer;
      throw new HubgateError('no-challenge', 'No ACME challenge is pending for this name');
    }
    if (socket.getProtocol() === 'TLSv1.3') return source.certificateFor(serverName);
    const answer = await source.challengeFor(serverName);
    this.#prepared.set(socket, answer);
    try {
      return await source.certificateFor(serverName, answer === null);
    } catch (error) {
      if (answer === null) throw error;
      this.#provisional.add(socket);
      return answer;
    }
  }

  /** Whether the connection has no further use once its handshake is complete. */
  isOver(socket: TLSSocket): boolean {
    return socket.alpnProtocol === ACME_TLS || this.#provisional.has(socket);
  }
}
