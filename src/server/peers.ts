import type { Socket } from 'node:net';
import { plainAddress } from '../http/forwarded.ts';
import { carrierOf } from './node-internals.ts';

/** The address of a connection's other end, or the one that a PROXY protocol header names for it. */
export interface Peer {
  /** Empty for a Unix socket. */
  readonly address: string;
  readonly port: number;
}

/** A property, like that of the handshake policy: the sockets of HTTP/2 requests are proxies of the real one. */
const PEER = Symbol('who is at the other end');

interface Marked {
  [PEER]?: Peer;
}

const NOBODY: Peer = { address: '', port: 0 };

/**
 * Who is at the other end of the open connections of a listener, and how many each has. What a PROXY
 * protocol header says is written on the socket that was accepted, and found again from the one that TLS
 * makes of it. An address and a port would not tell connections apart: where a machine has two addresses,
 * one client may come from the same port to both.
 */
export class Peers {
  readonly #connections = new Map<string, number>();

  /** Notes a connection until it closes, and says who it is; `named` is what a PROXY protocol header says. */
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
   * Writes on the socket that requests will have who is at its other end. False when the connection
   * has closed meanwhile: then it must not pass for one of the proxy that made it.
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

/** What {@link Peers.mark} has written; nobody when an HTTP/2 connection is gone already. */
export function peerOf(socket: Socket & Marked): Peer {
  return socket[PEER] ?? NOBODY;
}

function endOf({ remoteAddress = '', remotePort = 0 }: Socket): Peer {
  return { address: plainAddress(remoteAddress), port: remotePort };
}
