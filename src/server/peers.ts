import type { Socket } from 'node:net';
import { plainAddress } from '../http/forwarded.ts';
import { carrierOf } from './node-internals.ts';

/** The address of a connection's other end, or the address in a PROXY protocol header. */
export interface Peer {
  /** Empty for a Unix socket. */
  readonly address: string;
  readonly port: number;
}

/**
 * A property, like the handshake policy, because the sockets of HTTP/2 requests are proxies of the real one.
 */
const PEER = Symbol('who is at the other end');

interface Marked {
  [PEER]?: Peer;
}

const NOBODY: Peer = { address: '', port: 0 };

/**
 * The peers of a listener's open connections, and the number of connections of each. The address in a PROXY
 * protocol header is stored on the accepted socket, and found again from the TLS socket above it. An address
 * and a port would not identify a connection: if a machine has two addresses, one client can connect to both
 * from the same port.
 */
export class Peers {
  readonly #connections = new Map<string, number>();

  /**
   * Records a connection until it closes, and returns its peer; `named` is the peer in a PROXY protocol
   * header.
   */
  add(socket: Socket & Marked, named: Peer | null): Peer {
    const peer = named ?? endOf(socket);
    const { address } = peer;
    socket[PEER] = peer;
    this.#connections.set(address, this.connectionsOf(address) + 1);
    socket.on('close', () => {
      const left = this.connectionsOf(address) - 1;
      if (left === 0) this.#connections.delete(address);
      else this.#connections.set(address, left);
    });
    return peer;
  }

  /**
   * Stores the peer on the socket that requests will have. Returns false if the connection has closed in the
   * meantime. Otherwise its peer would seem to be the proxy that opened it.
   */
  mark(socket: Socket & Marked): boolean {
    const carrier: Socket & Marked = carrierOf(socket);
    const peer = carrier[PEER];
    if (peer === undefined || carrier.destroyed) return false;
    socket[PEER] = peer;
    return true;
  }

  connectionsOf(address: string): number {
    return this.#connections.get(address) ?? 0;
  }
}

/**
 * Returns the peer that {@link Peers.mark} has stored, or an empty one if an HTTP/2 connection is already
 * gone.
 */
export function peerOf(socket: Socket & Marked): Peer {
  return socket[PEER] ?? NOBODY;
}

function endOf({ remoteAddress = '', remotePort = 0 }: Socket): Peer {
  return { address: plainAddress(remoteAddress), port: remotePort };
}
