import type { Socket } from 'node:net';
import type { ServerOptions } from '../config/config.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';
import { Http2 } from './http2.ts';
import type { RequestSink } from './connection-policy.ts';
import { Http1Connection, type Http1Settings } from './http1-connection.ts';
import { Turns } from './pipelined-requests.ts';

/** Both protocols with one set of limits. Connections that a listener has accepted are passed to it. */
export class Protocols {
  readonly limits: ServerOptions;
  readonly #http1: Http1;
  readonly #http2: Http2;
  #connections = 0;
  #onIdle: (() => void) | null = null;

  constructor(limits: ServerOptions, sink: RequestSink, clock: Clock, log: Logger) {
    this.limits = limits;
    this.#http1 = new Http1(limits, sink, clock);
    this.#http2 = new Http2(limits, sink, clock, log);
  }

  /** Serves HTTP/1.1 on a connection. */
  acceptHttp1(socket: Socket): void {
    this.#count(socket);
    this.#http1.accept(socket);
  }

  /** Serves HTTP/2 on a connection whose TLS handshake has selected it. */
  acceptHttp2(socket: Socket): void {
    this.#count(socket);
    this.#http2.accept(socket);
  }

  /** No more connections will arrive. Closes when the last one is gone, and calls `onIdle`. */
  retire(onIdle: () => void): void {
    this.#onIdle = onIdle;
    this.#closeWhenIdle();
  }

  /** Lets requests in progress finish, and closes each connection afterwards. */
  drain(): void {
    this.#http1.drain();
    this.#http2.drain();
  }

  #count(socket: Socket): void {
    this.#connections += 1;
    socket.on('close', this.#onClose);
  }

  readonly #onClose = (): void => {
    this.#connections -= 1;
    this.#closeWhenIdle();
  };

  #closeWhenIdle(): void {
    if (this.#onIdle === null || this.#connections > 0) return;
    this.#onIdle();
    this.#onIdle = null;
  }
}

/** HTTP/1.1 with one set of limits. Connections are passed to it. */
export class Http1 {
  readonly #settings: Http1Settings;
  readonly #connections = new Set<Http1Connection>();

  constructor({ maxHeaderSize, timeouts }: ServerOptions, sink: RequestSink, clock: Clock) {
    const { readHeaderMs, idleMs } = timeouts;
    this.#settings = {
      ...{ maxHeaderSize, readHeaderMs, idleMs, sink, clock },
      turns: new Turns(setImmediate),
      isDraining: false,
      onEnd: (connection) => void this.#connections.delete(connection),
    };
  }

  accept(socket: Socket): void {
    this.#connections.add(new Http1Connection(socket, this.#settings));
  }

  /** Lets requests in progress finish, and closes each connection afterwards. */
  drain(): void {
    this.#settings.isDraining = true;
    for (const connection of this.#connections) connection.drain();
  }
}
