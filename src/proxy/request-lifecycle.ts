import type { Readable, Writable } from 'node:stream';
import { HubgateError } from '../kernel/error.ts';
import { BodyFlow, type Source } from './body-flow.ts';
import { type ForwardRequest, MAX_STALL_MS } from './forwarding.ts';
import { exchangeFailure, ForwardError, type ForwardPhase } from './forward-error.ts';

/**
 * The course of one exchange with an upstream, whatever protocol it is made by: one time limit at a
 * time, a client that may leave, and an end that is told once.
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

  /** `close` lets go of what the exchange holds, once it is over. */
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

  /** Runs `task` unless the client has left, and ends the exchange when it leaves later. */
  start(task: () => void): void {
    const { client } = this.#request;
    if (client.abandoned) {
      this.fail(clientLeft());
      return;
    }
    this.#forgetClient = client.onAbandoned(() => this.fail(clientLeft()));
    this.guard(task);
  }

  /** Starts the one time limit that holds now, in milliseconds; 0 for none. */
  limit(ms: number, missing = ''): void {
    this.#stopLimit();
    if (ms === 0 || this.#settled) return;
    this.#stopLimit = this.#request.clock.after(ms, () => {
      this.fail(new HubgateError('upstream-timeout', `${missing} within ${ms} ms`));
    });
  }

  /** The time within which more of the response must come; 0 for none. */
  awaitBody(ms: number): void {
    this.limit(ms, 'no further data of the response');
  }

  /**
   * Writes a piece of the response's body to the client. Where that takes no more the source waits,
   * and its silence is not fault of its own; a client that takes nothing at all is closed.
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
   * Writes the request's body to an upstream, with back-pressure. While that takes no more, it may as well
   * answer: `held` begins the wait for it. `write` says how a chunk goes out. Its memory is given back then.
   */
  send(
    body: Readable,
    outgoing: Writable,
    held: () => void,
    write: (chunk: Buffer, flow: BodyFlow) => void = (chunk, to) => to.write(chunk, chunk),
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

  /** What a callback of ours throws ends the exchange and goes to the caller. */
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

  /** Ends it with what the failure means to the caller: a ForwardError, or the body's HttpError. */
  fail(error: Error): void {
    this.reject(exchangeFailure(error, this.phase, this.#request.client.abandoned));
  }

  /** Ends it with just that. */
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
