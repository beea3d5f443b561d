import type { Readable, Writable } from 'node:stream';
import { HubgateError } from '../kernel/error.ts';
import { BodyFlow, type Source } from './body-flow.ts';
import { type ForwardRequest, MAX_STALL_MS } from './forwarding.ts';
import { exchangeFailure, ForwardError, type ForwardPhase } from './forward-error.ts';

/**
 * The course of one exchange with an upstream, with any protocol: one time limit at a time, a client that may
 * leave, and an end that is reported once.
 */
export class RequestLifecycle {
  phase: ForwardPhase = 'unsent';
  readonly #request: Pick<ForwardRequest, 'client' | 'clock'>;
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
    resolve: () => void,
    reject: (error: unknown) => void,
    close: () => void,
  ) {
    this.#request = request;
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

  /** The time within which more of the response must arrive; 0 for none. */
  awaitBody(ms: number): void {
    this.limit(ms, 'no further data of the response');
  }

  /**
   * Writes a piece of the response body to the client. If the client accepts no more, the source waits, and
   * its silence is not a fault. A client that reads nothing at all is disconnected.
   */
  pass(chunk: Buffer, body: Writable, source: Source, readTimeoutMs: number): void {
    if (this.#settled) return;
    if (body.destroyed) {
      this.fail(clientLeft());
      return;
    }
    this.#flow ??= this.#flowTo(body, source, readTimeoutMs);
    this.#flow.write(chunk);
    if (!this.#flow.isHeld) this.awaitBody(readTimeoutMs);
  }

  #flowTo(body: Writable, source: Source, readTimeoutMs: number): BodyFlow {
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
          this.awaitBody(readTimeoutMs);
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
   * respond instead: `held` begins the wait for that. `write` writes a chunk.
   */
  send(
    body: Readable,
    outgoing: Writable,
    held: () => void,
    write: (chunk: Buffer, flow: BodyFlow) => void = (chunk, to) => to.write(chunk),
  ): void {
    body.on('error', (error) => this.fail(error));
    const flow = this.#begun(
      new BodyFlow(outgoing, body, {
        held,
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
      held();
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
