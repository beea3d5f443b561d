import type { Writable } from 'node:stream';
import { MAX_DISCARDED_BYTES, MAX_DISCARDING_MS } from '../http/exchange-response.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Http1Writer } from '../http/http1-writer.ts';
import type { Clock } from '../kernel/clock.ts';
import { HubgateError } from '../kernel/error.ts';
import { RecentObjects } from '../kernel/v8-memory.ts';
import { BodyFlow, type FlowListener, type Source } from './body-flow.ts';
import { exchangeFailure, ForwardError, type ForwardPhase } from './forward-error.ts';
import {
  type ForwardRequest,
  type ForwardSink,
  MAX_STALL_MS,
  noteLength,
  type RequestingClient,
  type TransportSettings,
} from './forwarding.ts';
import type { Http1Connection, Http1Receiver } from './http1-connection.ts';
import type { ReceivedHead } from './http1-head.ts';
import { Http1Upload, type UploadListener } from './http1-upload.ts';

const recent = new RecentObjects();

/**
 * The course of one exchange over an HTTP/1.1 connection. It is the source of the response's body, and listens
 * to its flow and to the upload.
 */
export class Http1Exchange implements Http1Receiver, Source, FlowListener, UploadListener {
  readonly method: string;
  readonly #client: RequestingClient;
  readonly #clock: Clock;
  /** The request and its head. Neither is kept while the exchange waits for the response. */
  #request: ForwardRequest | null;
  #head: Http1Writer | null;
  readonly #settings: TransportSettings;
  readonly #sink: ForwardSink;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;
  readonly #forgetClient: () => void;
  #phase: ForwardPhase = 'unsent';
  /** null before the request is sent, and after the exchange has ended. */
  #connection: Http1Connection | null = null;
  #upload: Http1Upload | null = null;
  #body: Writable | null = null;
  #flow: BodyFlow | null = null;
  #discarded = 0;
  #isSettled = false;
  /** Ends the one active time limit. */
  #stopLimit: (() => void) | null = null;
  /** The monotonic time at which the upstream last sent a part of the body. */
  #heardAt = 0;
  /** Ends the wait for a client that reads nothing. */
  #stopStall: (() => void) | null = null;

  /** @param head see {@link beginRequest} */
  constructor(
    request: ForwardRequest,
    head: Http1Writer,
    settings: TransportSettings,
    sink: ForwardSink,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    const { client } = request;
    recent.keep(this);
    this.method = request.method;
    this.#client = client;
    this.#clock = request.clock;
    this.#request = request;
    this.#head = head;
    this.#settings = settings;
    this.#sink = sink;
    this.#resolve = resolve;
    this.#reject = reject;
    if (client.abandoned) {
      this.#forgetClient = nothing;
      this.failed(aborted());
    } else this.#forgetClient = client.onAbandoned(() => this.failed(aborted()));
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  /**
   * The request must have been sent completely. A server that sends a body after its response to HEAD must not
   * answer the next request with it.
   */
  get allowsReuse(): boolean {
    return this.method !== 'HEAD' && this.#upload?.isComplete !== false;
  }

  /** A connection is being opened for it, which is closed if the client leaves meanwhile. */
  awaitConnection(connection: Http1Connection): void {
    this.#connection = connection;
    this.#limit(this.#settings.dialTimeoutMs, 'no connection');
  }

  onReady(connection: Http1Connection): void {
    this.#connection = connection;
    this.#endLimit();
    this.#phase = 'sent';
    const request = this.#request;
    const head = this.#head;
    this.#request = null;
    this.#head = null;
    if (request === null || head === null) return;
    const { body } = request;
    if (body === null) {
      connection.send(head);
      this.#awaitHead();
      return;
    }
    try {
      this.#upload = new Http1Upload(request, body, head, connection, this);
    } catch (error) {
      this.#end(error);
      return;
    }
    this.#upload.start();
  }

  onInformation(status: number, headers: HeaderList): void {
    if (status === 100) {
      // The client's own expectation is answered when its body is read. Any other 100 has no effect.
      this.#upload?.sendBody();
      return;
    }
    try {
      this.#sink.onInformation(status, headers, '1.1');
    } catch (error) {
      this.#end(error);
    }
  }

  onWhole(head: ReceivedHead, piece: Buffer | null, trailers: HeaderList): void {
    try {
      const body = this.#begin(head);
      if (body?.destroyed === true) {
        this.failed(aborted());
        return;
      }
      // Everything is written at once, so that nobody waits for the body.
      if (body?.listenerCount('error') === 0) body.on('error', nothing);
      if (body !== null && piece !== null) body.write(piece);
      if (body !== null) this.#sink.onEnd(body, trailers);
      this.#finish();
    } catch (error) {
      this.#end(error);
    }
  }

  onHead(head: ReceivedHead): void {
    try {
      this.#body = this.#begin(head);
      if (this.#body === null) {
        this.#stopLimit = this.#clock.after(MAX_DISCARDING_MS, () => this.#finish());
        return;
      }
      this.#body.on('error', () => this.failed(aborted()));
      this.#awaitBody();
    } catch (error) {
      this.#end(error);
    }
  }

  onData(piece: Buffer): void {
    const body = this.#body;
    if (this.#isSettled) return;
    if (body === null) {
      this.#discarded += piece.length;
      // The rest is not worth reading.
      if (this.#discarded > MAX_DISCARDED_BYTES) this.#finish();
    } else if (body.destroyed) this.failed(aborted());
    else {
      this.#flow ??= new BodyFlow(body, this, this);
      this.#flow.write(piece);
      if (!this.#flow.isHeld) this.#awaitBody();
    }
  }

  onEnd(trailers: HeaderList): void {
    if (this.#isSettled) return;
    try {
      if (this.#body !== null) this.#sink.onEnd(this.#body, trailers);
      this.#finish();
    } catch (error) {
      this.#end(error);
    }
  }

  onDrain(): void {
    this.#upload?.drained();
  }

  onFailure(error: Error): void {
    const isReused = this.#connection?.isReused === true;
    this.#connection = null;
    if (this.#phase === 'responding' && this.#body === null) {
      // Nobody wants what is missing.
      this.#finish();
      return;
    }
    if (this.#phase !== 'sent' || this.#upload?.hasBegun !== false) {
      this.failed(error);
      return;
    }
    // The request still waited for its body. A kept connection may end at any time, which is no fault of the upstream.
    const code = isReused ? 'upstream-refused' : 'upstream-broken';
    this.failed(new ForwardError(code, 'unsent', error));
  }

  /** The client accepts no more of the body. */
  pause(): void {
    this.#connection?.pause();
  }

  resume(): void {
    this.#connection?.resume();
  }

  held(): void {
    this.#endLimit();
    this.taken();
  }

  taken(): void {
    this.#stopStall?.();
    if (this.#isSettled) return;
    this.#stopStall = this.#clock.after(MAX_STALL_MS, () => this.failed(stalled()));
  }

  freed(): void {
    this.#stopStall?.();
    this.#awaitBody();
  }

  uploadHeld(): void {
    if (this.#phase === 'sent') this.#awaitHead();
  }

  uploadFreed(): void {
    if (this.#phase === 'sent') this.#endLimit();
  }

  uploadEnded(): void {
    if (this.#phase === 'sent') this.#awaitHead();
  }

  /** Ends the exchange with the error for the caller: a ForwardError, or the body's HttpError. */
  failed(error: Error): void {
    const left = this.#client.abandoned || this.#body?.destroyed === true;
    this.#end(error instanceof ForwardError ? error : exchangeFailure(error, this.#phase, left));
  }

  #begin({ status, headers }: ReceivedHead): Writable | null {
    this.#phase = 'responding';
    this.#endLimit();
    this.#upload?.refuseBody();
    noteLength(this.#client, status, headers);
    return this.#sink.onHead(status, headers, '1.1', this.method === 'HEAD');
  }

  #finish(): void {
    if (this.#settle()) this.#resolve();
  }

  /** Ends the exchange with exactly this error. */
  #end(error: unknown): void {
    if (this.#settle()) this.#reject(error);
  }

  /** Returns false if the exchange has ended before. */
  #settle(): boolean {
    if (this.#isSettled) return false;
    this.#isSettled = true;
    this.#flow?.end();
    this.#endLimit();
    this.#stopStall?.();
    this.#forgetClient();
    this.#upload?.stop();
    const connection = this.#connection;
    this.#connection = null;
    connection?.leave(this);
    return true;
  }

  #awaitHead(): void {
    this.#limit(this.#settings.responseHeaderTimeoutMs, 'no response');
  }

  /** The time within which more of the response must arrive. One timer serves many pieces. */
  #awaitBody(): void {
    const { readTimeoutMs } = this.#settings;
    if (readTimeoutMs === 0 || this.#isSettled) return;
    this.#heardAt = this.#clock.monotonic();
    if (this.#stopLimit === null) this.#checkSilenceAfter(readTimeoutMs);
  }

  #checkSilenceAfter(ms: number): void {
    const clock = this.#clock;
    const { readTimeoutMs } = this.#settings;
    this.#stopLimit = clock.after(ms, () => {
      const left = this.#heardAt + readTimeoutMs - clock.monotonic();
      if (left > 0) this.#checkSilenceAfter(left);
      else this.failed(late('no further data of the response', readTimeoutMs));
    });
  }

  /** Starts a time limit in milliseconds; 0 for none. */
  #limit(ms: number, missing: string): void {
    this.#endLimit();
    if (ms === 0 || this.#isSettled) return;
    this.#stopLimit = this.#clock.after(ms, () => this.failed(late(missing, ms)));
  }

  #endLimit(): void {
    this.#stopLimit?.();
    this.#stopLimit = null;
  }
}

function late(missing: string, ms: number): Error {
  return new HubgateError('upstream-timeout', `${missing} within ${ms} ms`);
}

function stalled(): Error {
  return new HubgateError('client-left', `The client read nothing within ${MAX_STALL_MS} ms`);
}

function aborted(): Error {
  return new HubgateError('upstream-aborted', 'The exchange was aborted');
}

function nothing(): void {}
