import type { Socket } from 'node:net';
import type { ServerOptions } from '../config/config.ts';
import type { Clock } from '../kernel/clock.ts';
import type { RequestSink } from './connection-policy.ts';
import { Http1Connection, type Http1Settings } from './http1-connection.ts';
import { sharedListener } from './node-internals.ts';
import { Turns } from './pipelined-requests.ts';

/** HTTP/1.1 with one set of limits. Connections are passed to it. */
export class Http1 {
  readonly #settings: Http1Settings;
  readonly #connections = new Map<Socket, Http1Connection>();

  constructor({ maxHeaderSize, timeouts }: ServerOptions, sink: RequestSink, clock: Clock) {
    const { readHeaderMs, idleMs } = timeouts;
    this.#settings = {
      ...{ maxHeaderSize, readHeaderMs, idleMs, sink, clock },
      turns: new Turns(setImmediate),
      isDraining: false,
      onLeave: (socket) => void this.#connections.delete(socket),
    };
  }

  accept(socket: Socket): void {
    this.#connections.set(socket, new Http1Connection(socket, this.#settings));
    socket.on('close', this.#forget);
  }

  /** Lets requests in progress finish, and closes each connection afterwards. */
  drain(): void {
    this.#settings.isDraining = true;
    for (const connection of this.#connections.values()) connection.drain();
  }

  readonly #forget = sharedListener((socket) => void this.#connections.delete(socket));
}
