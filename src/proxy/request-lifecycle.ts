import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import { isUnwanted } from '../http/deferred-body.ts';
import { tooLarge } from '../http/http1-syntax.ts';
import { HubgateError } from '../kernel/error.ts';
import { BodyFlow, type FlowListener, type Source } from './body-flow.ts';
import { exchangeFailure, ForwardError, type ForwardPhase } from './forward-error.ts';
import {
  type ForwardRequest,
  MAX_INFORMATIONAL,
  MAX_STALL_MS,
  type RequestingClient,
  type TransportSettings,
} from './forwarding.ts';

/**
 * The course of one exchange with an upstream, with any protocol: one time limit at a time, a client that may
 * leave, a response that waits for its client, and an end that is reported once.
 */
export abstract class RequestLifecycle implements FlowListener, Source {
  protected phase: ForwardPhase = 'unsent';
  /** The body of the response as the client gets it; null before the head, and if nobody wants it. */
  protected body: Writable | null = null;
  protected readonly client: RequestingClient;
  protected readonly settings: TransportSettings;
  readonly #clock: Clock;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;
  #informational = 0;
  #isSettled = false;
  #flow: BodyFlow | null = null;
  #uploadFlow: BodyFlow | null = null;
  #forgetClient: (() => void) | null = null;
  /** Ends the one active time limit. */
  #stopLimit: (() => void) | null = null;
  /** The monotonic time at which the upstream last sent a part of the body. */
  #heardAt = 0;
  /** Ends the wait for a client that reads nothing. */
  #stopStall: (() => void) | null = null;

  constructor(
    { client, clock }: Pick<ForwardRequest, 'client' | 'clock'>,
    settings: TransportSettings,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    this.client = client;
    this.#clock = clock;
    this.settings = settings;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Stops the upstream's data, because the client accepts no more of the body. */
  abstract pause(): void;
  abstract resume(): void;
  /** Releases what the exchange holds, once it has ended. */
  protected abstract release(): void;

  /** Ends the exchange if the client has left, or when it leaves. */
  protected watchClient(): void {
    if (this.client.abandoned) this.failed(clientLeft());
    else this.#forgetClient = this.client.onAbandoned(() => this.failed(clientLeft()));
  }

  /** Counts an informational response. Fails if there are too many. */
  protected mayInform(): boolean {
    this.#informational += 1;
    if (this.#informational <= MAX_INFORMATIONAL) return true;
    this.failed(tooLarge(`More than ${MAX_INFORMATIONAL} informational responses`));
    return false;
  }

  /** Starts the one active time limit, in milliseconds; 0 for none. */
  protected limit(ms: number, missing: string): void {
    this.startLimit(ms, () => this.failed(late(missing, ms)));
  }

  /** Replaces the active time limit. `task` ends the exchange. */
  protected startLimit(ms: number, task: () => void): void {
    this.endLimit();
    if (ms > 0 && !this.#isSettled) this.#stopLimit = this.#clock.after(ms, task);
  }

  protected endLimit(): void {
    this.#stopLimit?.();
    this.#stopLimit = null;
  }

  /** The time within which the response must begin, unless it has. */
  protected awaitHead(): void {
    if (this.phase === 'sent') this.limit(this.settings.responseHeaderTimeoutMs, 'no response');
  }

  /** The response begins. */
  protected beginResponse(): void {
    this.phase = 'responding';
    this.endLimit();
  }

  /** The time within which more of the response must arrive. One timer serves many pieces. */
  protected awaitBody(): void {
    const { readTimeoutMs } = this.settings;
    if (readTimeoutMs === 0 || this.#isSettled) return;
    this.#heardAt = this.#clock.monotonic();
    if (this.#stopLimit === null) this.#checkSilenceAfter(readTimeoutMs);
  }

  #checkSilenceAfter(ms: number): void {
    const clock = this.#clock;
    const { readTimeoutMs } = this.settings;
    this.#stopLimit = clock.after(ms, () => {
      const left = this.#heardAt + readTimeoutMs - clock.monotonic();
      if (left > 0) this.#checkSilenceAfter(left);
      else this.failed(late('no further data of the response', readTimeoutMs));
    });
  }

  /**
   * Writes a piece of the response body to the client. If the client accepts no more, the upstream waits, and
   * its silence is not a fault. A client that reads nothing at all is disconnected.
   */
  protected pass(piece: Buffer, body: Writable): void {
    if (this.#isSettled) return;
    if (body.destroyed) return this.failed(clientLeft());
    this.#flow ??= new BodyFlow(body, this, this);
    this.#flow.write(piece);
    if (!this.#flow.isHeld) this.awaitBody();
  }

  held(): void {
    this.endLimit();
    this.taken();
  }

  taken(): void {
    this.#stopStall?.();
    if (this.#isSettled) return;
    this.#stopStall = this.#clock.after(MAX_STALL_MS, () => this.failed(stalled()));
  }

  freed(): void {
    this.#stopStall?.();
    this.awaitBody();
  }

  /** The upstream accepts no more of the request, and may respond instead. */
  uploadHeld(): void {
    this.awaitHead();
  }

  uploadFreed(): void {
    if (this.phase === 'sent') this.endLimit();
  }

  uploadEnded(): void {
    this.awaitHead();
  }

  /**
   * Writes the request body to an upstream, with back-pressure. While the upstream accepts no more, it may
   * respond instead. `write` writes a chunk, and `end` what follows the body.
   */
  protected send(
    body: Readable,
    outgoing: Writable,
    write: (chunk: Buffer, flow: BodyFlow) => void,
    end: () => void,
  ): void {
    body.on('error', (error) => this.failed(error));
    const flow = new BodyFlow(outgoing, body, {
      held: () => this.uploadHeld(),
      taken: () => {},
      freed: () => this.uploadFreed(),
    });
    this.#uploadFlow = flow;
    body.on('data', (chunk: Buffer) => {
      if (this.#isSettled) return;
      if (outgoing.writable) return write(chunk, flow);
      body.pause();
      this.awaitHead();
    });
    body.once('end', () => {
      if (this.#isSettled) return;
      end();
      this.uploadEnded();
    });
  }

  /** An error of a callback ends the exchange and is passed to the caller. */
  protected guard(task: () => void): void {
    if (this.#isSettled) return;
    try {
      task();
    } catch (error) {
      const isOwn = error instanceof HubgateError && error.code === 'upstream-broken';
      if (isOwn) this.failed(error);
      else this.end(error);
    }
  }

  protected finish(): void {
    if (this.settle()) this.#resolve();
  }

  /** Ends the exchange with the error for the caller: a ForwardError, or the body's HttpError. */
  failed(error: Error): void {
    if (this.body !== null && isUnwanted(this.body)) return this.finish();
    const left = this.client.abandoned || this.body?.destroyed === true;
    this.end(error instanceof ForwardError ? error : exchangeFailure(error, this.phase, left));
  }

  /** Ends the exchange with exactly this error. */
  protected end(error: unknown): void {
    if (this.settle()) this.#reject(error);
  }

  /** Ends the exchange without a result. Returns false if it has ended before. */
  protected settle(): boolean {
    if (this.#isSettled) return false;
    this.#isSettled = true;
    this.#flow?.end();
    this.#uploadFlow?.end();
    this.endLimit();
    this.#stopStall?.();
    this.#forgetClient?.();
    this.release();
    return true;
  }
}

export function clientLeft(cause?: Error): HubgateError {
  return new HubgateError('client-left', 'The exchange was aborted', { cause });
}

export function broken(message: string): HubgateError {
  return new HubgateError('upstream-broken', message);
}

function late(missing: string, ms: number): HubgateError {
  return new HubgateError('upstream-timeout', `${missing} within ${ms} ms`);
}

function stalled(): HubgateError {
  return new HubgateError('client-left', `The client read nothing within ${MAX_STALL_MS} ms`);
}
