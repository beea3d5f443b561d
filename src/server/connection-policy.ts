import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { ClientCertificate } from '../http/client-certificate.ts';
import { type HandshakePolicy, isVerified } from '../tls/handshake-policy.ts';

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
