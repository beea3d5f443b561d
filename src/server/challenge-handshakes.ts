import { createSecureContext, type TLSSocket } from 'node:tls';
import { HubgateError } from '../kernel/error.ts';
import type { Certificate } from '../tls/certificate.ts';
import type { CertificateSource } from '../tls/certificates.ts';

/** What an authority offers, and nothing else, when it looks for a TLS-ALPN-01 answer (RFC 8737 §4). */
export const ACME_TLS = 'acme-tls/1';

/**
 * Handshakes by which an authority looks for the answer to a challenge. OpenSSL settles the
 * protocol before the certificate in TLS 1.3, and after it in TLS 1.2: there the answer is kept
 * ready beside the ordinary certificate until it is known which of them is wanted.
 */
export class ChallengeHandshakes {
  /** Have asked for a challenge before their certificate was looked for. */
  readonly #asked = new WeakSet<TLSSocket>();
  /** Whose certificate was looked for first, with the answer there would be. */
  readonly #prepared = new WeakMap<TLSSocket, Certificate | null>();
  /** Have got the answer in place of an ordinary certificate, as there is none yet. */
  readonly #provisional = new WeakSet<TLSSocket>();

  /** Takes the turn of the protocol; null when it is none of an authority's. */
  protocol(socket: TLSSocket, offered: readonly string[]): typeof ACME_TLS | 'refused' | null {
    if (offered.length !== 1 || offered[0] !== ACME_TLS) return null;
    const answer = this.#prepared.get(socket);
    if (answer === null) return 'refused';
    if (answer === undefined) this.#asked.add(socket);
    else socket.setKeyCert(createSecureContext(answer));
    return ACME_TLS;
  }

  /**
   * Takes the turn of the certificate.
   *
   * @throws HubgateError `no-challenge` when none is pending, else as the source does
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

  /** Whether the connection is of no other use, now that its handshake is done. */
  isOver(socket: TLSSocket): boolean {
    return socket.alpnProtocol === ACME_TLS || this.#provisional.has(socket);
  }
}
