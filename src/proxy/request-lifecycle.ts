import type { Readable, Writable } from 'node:stream';
import { HubgateError } from '../kernel/error.ts';
import { BodyFlow, type Source } from './body-flow.ts';
import { type ForwardRequest, MAX_STALL_MS, type TransportSettings } from './forwarding.ts';
import { exchangeFailure, ForwardError, type ForwardPhase } from './forward-error.ts';

/**
 * The course of one exchange with an upstream, with any protocol: one time limit at a time, a client that may
 * leave, and an end that is reported once.
 */
export class RequestLifecycle {
  phase: ForwardPhase = 'unsent';
  readonly #request: Pick<ForwardRequest, 'client' | 'clock'>;
  readonly #settings: TransportSettings;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;
  readonly #close: () => void;
  #stopLimit: () => void = () => {};
  #stopStall: () => void = () => {};
  #forgetClient: () => void = () => {};
  #flow: BodyFlow | null = null;
  readonly #flows: BodyFlow[] = [];
  #settled = false;

  /** `close` releases the resources of the exchange when it has ended. */
  constructor(
    request: Pick<ForwardRequest, 'client' | 'clock'>,
    settings: TransportSettings,
    resolve: () => void,
    reject: (error: unknown) => void,
    close: () => void,
  ) {
    this.#request = request;
    this.#settings = settings;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#close = close;
  }

  get settled(): boolean {
    return this.#settled;
  }

  /** Runs `task` unless the client has left, and ends the exchange if it leaves later. */
  start(task: () => void): void {
    const { client } = this.#request;
    if (client.abandoned) {
      this.fail(clientLeft());
      return;
    }
    this.#forgetClient = client.onAbandoned(() => this.fail(clientLeft()));
    this.guard(task);
  }

  /** Starts the one active time limit, in milliseconds; 0 for none. */
  limit(ms: number, missing = ''): void {
    this.#stopLimit();
    if (ms === 0 || this.#settled) return;
    this.#stopLimit = this.#request.clock.after(ms, () => {
      this.fail(new HubgateError('upstream-timeout', `${missing} within ${ms} ms`));
    });
  }

  /** The time within which the response must begin, unless it has. */
  awaitHead(): void {
    if (this.phase === 'sent') this.limit(this.#settings.responseHeaderTimeoutMs, 'no response');
  }

  /** The time within which more of the response must arrive. */
  awaitBody(): void {
    this.limit(this.#settings.readTimeoutMs, 'no further data of the response');
  }

  /**
   * Writes a piece of the response body to the client. If the client accepts no more, the source waits, and
   * its silence is not a fault. A client that reads nothing at all is disconnected.
   */
  pass(chunk: Buffer, body: Writable, source: Source): void {
    if (this.#settled) return;
    if (body.destroyed) {
      this.fail(clientLeft());
      return;
    }
    this.#flow ??= this.#flowTo(body, source);
    this.#flow.write(chunk);
    if (!this.#flow.isHeld) this.awaitBody();
  }

  #flowTo(body: Writable, source: Source): BodyFlow {
    const awaitTaking = (): void => {
      this.#stopStall();
      if (this.#settled) return;
      this.#stopStall = this.#request.clock.after(MAX_STALL_MS, () => this.fail(clientLeft()));
    };
    return this.#begun(
      new BodyFlow(body, source, {
        held: () => {
          this.limit(0);
          awaitTaking();
        },
        taken: awaitTaking,
        freed: () => {
          this.#stopStall();
          this.awaitBody();
        },
      }),
    );
  }

  #begun(flow: BodyFlow): BodyFlow {
    this.#flows.push(flow);
    return flow;
  }

  /**
   * Writes the request body to an upstream, with back-pressure. While the upstream accepts no more, it may
   * respond instead. `write` writes a chunk.
   */
  send(
    body: Readable,
    outgoing: Writable,
    write: (chunk: Buffer, flow: BodyFlow) => void = (chunk, to) => to.write(chunk),
  ): void {
    body.on('error', (error) => this.fail(error));
    const flow = this.#begun(
      new BodyFlow(outgoing, body, {
        held: () => this.awaitHead(),
        taken: () => {},
        freed: () => {
          if (this.phase === 'sent') this.limit(0);
        },
      }),
    );
    body.on('data', (chunk: Buffer) => {
      if (this.#settled) return;
      if (outgoing.writable) {
        write(chunk, flow);
        return;
      }
      body.pause();
      this.awaitHead();
    });
  }

  /** An error of a callback ends the exchange and is passed to the caller. */
  guard(task: () => void): void {
    if (this.#settled) return;
    try {
      task();
    } catch (error) {
      const isOwn = error instanceof HubgateError && error.code === 'upstream-broken';
      if (isOwn && !(error instanceof ForwardError)) this.fail(error);
      else this.reject(error);
    }
  }

  finish(): void {
    if (this.#settled) return;
    this.#settle();
    this.#resolve();
  }

  /** Ends the exchange with the error for the caller: a ForwardError, or the body's HttpError. */
  fail(error: Error): void {
    this.reject(exchangeFailure(error, this.phase, this.#request.client.abandoned));
  }

  /** Ends the exchange with exactly this error. */
  reject(error: unknown): void {
    if (this.#settled) return;
    this.#settle();
    this.#reject(error);
  }

  #settle(): void {
    this.#settled = true;
    for (const flow of this.#flows) flow.end();
    this.#stopLimit();
    this.#stopStall();
    this.#forgetClient();
    this.#close();
  }
}

export function clientLeft(cause?: Error): Error {
  return new HubgateError('client-left', 'The exchange was aborted', { cause });
}

export function broken(message: string): HubgateError {
  return new HubgateError('upstream-broken', message);
}
