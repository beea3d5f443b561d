import type { Clock } from '../kernel/clock.ts';
import { codeOf } from '../kernel/error.ts';
import type { Connections, ForwardRequest, ForwardSink } from './forwarding.ts';
import { exchangeFailure, ForwardError, leftWaiting, refuseIfBusy } from './forward-error.ts';
import { dialHttp2, Http2Session, type Offer } from './http2-session.ts';
import { forwardByHttp2 } from './http2-forward.ts';
import type { DialTarget } from './upgrade-request.ts';

/** Most sessions with one upstream if `max_conns_per_host` is not set. */
const MAX_SESSIONS = 100;

interface Waiter {
  readonly clock: Clock;
  readonly go: (session: Http2Session) => void;
  readonly fail: (error: unknown) => void;
}

/**
 * HTTP/2 sessions with one upstream: as many as its requests need streams, within `max_conns_per_host`. One
 * is opened at a time. Requests without a free stream wait.
 */
export class Http2Sessions implements Connections {
  readonly #target: DialTarget;
  readonly #offer: Offer;
  readonly #maxSessions: number;
  readonly #sessions = new Set<Http2Session>();
  /** Closed for new requests, but with streams that are still open. */
  readonly #leaving = new Set<Http2Session>();
  readonly #waiting = new Set<Waiter>();
  #stopDial: (() => void) | null = null;
  #state: 'open' | 'closing' | 'destroyed' = 'open';

  constructor(target: DialTarget, offer: Offer) {
    this.#target = target;
    this.#offer = offer;
    this.#maxSessions = target.settings.maxConnectionsPerHost || MAX_SESSIONS;
  }

  async forward(request: ForwardRequest, sink: ForwardSink): Promise<void> {
    const session = await this.#take(request);
    try {
      await forwardByHttp2(session, this.#target, request, sink);
    } finally {
      session.giveBack(request.clock);
    }
  }

  close(): void {
    if (this.#state === 'open') this.#state = 'closing';
    this.#closeIfDone();
  }

  destroy(): void {
    this.#state = 'destroyed';
    this.#stopDial?.();
    for (const session of [...this.#sessions, ...this.#leaving]) session.session.destroy();
  }

  /** To be called whenever a request no longer waits. */
  #closeIfDone(): void {
    if (this.#state === 'open' || this.#waiting.size > 0) return;
    for (const session of this.#sessions) session.close();
  }

  /** @throws ForwardError `upstream-busy`, `upstream-aborted`, and the reason why there is no connection */
  #take({ client, clock }: ForwardRequest): Promise<Http2Session> {
    const free = this.#free();
    if (free !== undefined && this.#waiting.size === 0) {
      free.take(clock);
      return Promise.resolve(free);
    }
    return new Promise((resolve, reject) => {
      refuseIfBusy(this.#waiting.size);
      if (client.abandoned) return reject(leftWaiting());
      const left = (): void => {
        this.#waiting.delete(waiter);
        reject(leftWaiting());
        this.#closeIfDone();
      };
      const forget = client.onAbandoned(left);
      const waiter: Waiter = {
        clock,
        go: (session) => {
          forget();
          session.take(clock);
          resolve(session);
        },
        fail: (error) => {
          forget();
          reject(error);
        },
      };
      this.#waiting.add(waiter);
      this.#serve();
    });
  }

  #free(): Http2Session | undefined {
    for (const session of this.#sessions) if (session.hasRoom) return session;
    return undefined;
  }

  #serve(): void {
    for (const waiter of this.#waiting) {
      const session = this.#free();
      if (session === undefined) return this.#dial(waiter.clock);
      this.#waiting.delete(waiter);
      waiter.go(session);
    }
    this.#closeIfDone();
  }

  #dial(clock: Clock): void {
    if (this.#state === 'destroyed') {
      return this.#refuse(new Error('The sessions with the upstream are closed'));
    }
    if (this.#stopDial !== null || this.#sessions.size >= this.#maxSessions) return;
    this.#stopDial = dialHttp2(this.#target, this.#offer, clock, (error, opened) => {
      this.#stopDial = null;
      if (opened === null) return this.#refuse(error ?? new Error('no session'));
      const { keepAliveMs } = this.#target.settings;
      const session: Http2Session = new Http2Session(
        opened,
        keepAliveMs,
        () => this.#serve(),
        () => this.#lose(session),
      );
      this.#sessions.add(session);
      this.#serve();
      session.idleUnlessUsed(clock);
    });
  }

  /** If an upstream cannot be reached, no request waits for it. */
  #refuse(error: Error): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const { fail } of waiting) fail(exchangeFailure(error, 'unsent', false));
    this.#closeIfDone();
  }

  #lose(session: Http2Session): void {
    this.#sessions.delete(session);
    if (session.session.destroyed) this.#leaving.delete(session);
    else this.#leaving.add(session);
    this.#serve();
  }
}

/** Whether a request was not sent because the upstream supports only another version. */
export function isNoHttp2(error: unknown): boolean {
  return error instanceof ForwardError && codeOf(error.cause) === 'no-http2';
}
