import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { HandshakePolicy } from '../tls/handshake-policy.ts';

/** A property rather than a map by socket: the sockets of HTTP/2 requests are proxies of the real one. */
const POLICY = Symbol('id of the handshake policy');

const VERSION = Symbol('version of TLS');

interface Marked {
  [POLICY]?: string;
  [VERSION]?: string;
}

/** Notes under which policy a connection's handshake was made, and its client accepted. */
export function rememberPolicy(socket: TLSSocket & Marked, { id }: HandshakePolicy): void {
  socket[POLICY] = id;
  socket[VERSION] = socket.getProtocol() ?? '';
}

/** The id of that policy; null without TLS. */
export function policyOf(socket: Socket & Marked): string | null {
  return socket[POLICY] ?? null;
}

/** `TLSv1.3`, say; null without TLS. */
export function tlsVersionOf(socket: Socket & Marked): string | null {
  return socket[VERSION] ?? null;
}
