import { createSecureContext, type SecureContext } from 'node:tls';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import { Semaphore } from '../kernel/semaphore.ts';
import { leftWaiting, refuseIfBusy } from './forward-error.ts';
import type { Connections, ForwardRequest, ForwardSink } from './forwarding.ts';
import { Http1Connection, type Http1Owner } from './http1-connection.ts';
import { Http1Exchange } from './http1-exchange.ts';
import { beginRequest } from './http1-head.ts';
import type { DialTarget } from './upgrade-request.ts';

/** Idle connections to one upstream. Any further one is closed after its exchange. */
const MAX_IDLE_CONNECTIONS = 1024;
/**
 * Milliseconds before the upstream closes an idle connection from which it is not used any more, because the
 * request could cross the closing.
 */
const CLOSING_MARGIN_MS = 2000;

/** HTTP/1.1 connections to one upstream. */
export class Http1Connections implements Connections, Http1Owner {
  readonly target: DialTarget;
  session: Buffer | undefined;
  #secureContext: SecureContext | null = null;
  /** null: no limit. A client that leaves is removed from the queue. */
  readonly #turns: Semaphore | null;
  readonly #open = new Set<Http1Connection>();
  /** The connection that was used last is at the end, and is used first. */
  #idle: Http1Connection[] = [];
  /** Exchanges that get an idle connection at the end of this turn of the event loop. */
  #starting: Http1Exchange[] = [];
  /** That of the requests. */
  #clock: Clock | null = null;
  #stopSweep: (() => void) | null = null;
  #state: 'open' | 'closing' | 'destroyed' = 'open';

  constructor(target: DialTarget) {
    this.target = target;
    const limit = target.settings.maxConnectionsPerHost;
    this.#turns = limit === 0 ? null : new Semaphore(limit);
  }

  get secureContext(): SecureContext | null {
    const { address, trustPool } = this.target;
    if (address.protocol === 'http:') return null;
    this.#secureContext ??= createSecureContext(trustPool === null ? {} : { ca: trustPool });
    return this.#secureContext;
  }

  forward(request: ForwardRequest, sink: ForwardSink): Promise<void> {
    this.#clock = request.clock;
    return this.#turns === null
      ? this.#exchange(request, sink)
      : this.#forwardInTurn(this.#turns, request, sink);
  }

  /** @throws ForwardError `upstream-busy`, `upstream-aborted` */
  async #forwardInTurn(
    turns: Semaphore,
    request: ForwardRequest,
    sink: ForwardSink,
  ): Promise<void> {
    refuseIfBusy(turns.waiting);
    await turns.acquire((cancel) => request.client.onAbandoned(() => cancel(leftWaiting())));
    try {
      await this.#exchange(request, sink);
    } finally {
      turns.release();
    }
  }

  #exchange(request: ForwardRequest, sink: ForwardSink): Promise<void> {
    return new Promise((resolve, reject) => {
      const head = beginRequest(request, this.target);
      const { settings } = this.target;
      const exchange = new Http1Exchange(request, head, settings, sink, resolve, reject);
      if (exchange.isSettled) return;
      if (request.isRepeated) {
        // A new connection in place of a kept one, which may have ended as well.
        this.#idle.shift()?.destroy();
        this.#dial(exchange);
      } else this.#assign(exchange);
    });
  }

  /**
   * What has already arrived on an idle connection is read before a request is written to it: the end of the
   * connection, or bytes that must not answer the request.
   */
  #assign(exchange: Http1Exchange): void {
    if (this.#idle.length <= this.#starting.length) return this.#dial(exchange);
    if (this.#starting.length > 0) {
      this.#starting.push(exchange);
      return;
    }
    // A `push` to an empty array would make room for 17.
    this.#starting = [exchange];
    setImmediate(this.#start);
  }

  readonly #start = (): void => {
    const starting = this.#starting;
    this.#starting = [];
    for (const exchange of starting) {
      if (exchange.isSettled) continue;
      const connection = this.#takeIdle();
      if (connection === null) this.#dial(exchange);
      else connection.serve(exchange);
    }
  };

  #takeIdle(): Http1Connection | null {
    const now = this.#now();
    for (;;) {
      const connection = this.#idle.pop();
      if (connection === undefined) return null;
      if (connection.isUsable && connection.idleUntil > now) return connection;
      connection.destroy();
    }
  }

  #dial(exchange: Http1Exchange): void {
    if (this.#state === 'destroyed') return exchange.onFailure(closed());
    try {
      const connection = new Http1Connection(this, exchange);
      this.#open.add(connection);
      exchange.awaitConnection(connection);
    } catch (error) {
      exchange.onFailure(error instanceof Error ? error : closed());
    }
  }

  released(connection: Http1Connection, idleMs: number | null): void {
    const { keepAliveMs } = this.target.settings;
    const keptMs =
      idleMs === null ? keepAliveMs : Math.min(keepAliveMs, idleMs - CLOSING_MARGIN_MS);
    if (keptMs <= 0 || this.#state !== 'open' || this.#idle.length >= MAX_IDLE_CONNECTIONS) {
      connection.destroy();
      return;
    }
    connection.idleUntil = this.#now() + keptMs;
    this.#idle.push(connection);
    if (this.#stopSweep === null) this.#sweepAfter(keptMs);
  }

  closed(connection: Http1Connection): void {
    this.#open.delete(connection);
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  close(): void {
    if (this.#state === 'open') this.#state = 'closing';
    this.#stopSweep?.();
    this.#stopSweep = null;
    for (const connection of this.#idle.splice(0)) connection.destroy();
  }

  destroy(): void {
    this.close();
    this.#state = 'destroyed';
    for (const connection of this.#open) connection.fail(closed());
  }

  /** Closes idle connections whose time is over. One timer serves all of them. */
  #sweepAfter(ms: number): void {
    this.#stopSweep =
      this.#clock?.after(ms, () => {
        this.#stopSweep = null;
        const now = this.#now();
        const idle = this.#idle;
        this.#idle = idle.filter(({ idleUntil }) => idleUntil > now);
        for (const connection of idle) if (connection.idleUntil <= now) connection.destroy();
        const [first] = this.#idle;
        if (first !== undefined) this.#sweepAfter(first.idleUntil - now);
      }) ?? null;
  }

  #now(): number {
    return this.#clock?.monotonic() ?? 0;
  }
}

function closed(): Error {
  return new HubgateError('upstream-broken', 'The connections to the upstream are closed');
}
