import type { Writable } from 'node:stream';
import { MAX_DISCARDED_BYTES, MAX_DISCARDING_MS } from '../http/deferred-body.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { Http1Writer } from '../http/http1-writer.ts';
import { ignore } from '../kernel/error.ts';
import { RecentObjects } from '../kernel/v8-memory.ts';
import { ForwardError } from './forward-error.ts';
import {
  type ForwardRequest,
  type ForwardSink,
  noteLength,
  type TransportSettings,
} from './forwarding.ts';
import type { Http1Connection, Http1Receiver } from './http1-connection.ts';
import type { ReceivedHead } from './http1-head.ts';
import { Http1Upload, type UploadListener } from './http1-upload.ts';
import { clientLeft, RequestLifecycle } from './request-lifecycle.ts';

const recent = new RecentObjects();

/** One exchange over an HTTP/1.1 connection. */
export class Http1Exchange extends RequestLifecycle implements Http1Receiver, UploadListener {
  readonly method: string;
  /** The request and its head. Neither is kept while the exchange waits for the response. */
  #request: ForwardRequest | null;
  #head: Http1Writer | null;
  readonly #sink: ForwardSink;
  /** null before the request is sent, and after the exchange has ended. */
  #connection: Http1Connection | null = null;
  #upload: Http1Upload | null = null;
  #discarded = 0;

  /** @param head see {@link beginRequest} */
  constructor(
    request: ForwardRequest,
    head: Http1Writer,
    settings: TransportSettings,
    sink: ForwardSink,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    super(request, settings, resolve, reject);
    recent.keep(this);
    this.method = request.method;
    this.#request = request;
    this.#head = head;
    this.#sink = sink;
    this.watchClient();
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
    this.limit(this.settings.dialTimeoutMs, 'no connection');
  }

  onReady(connection: Http1Connection): void {
    this.#connection = connection;
    this.endLimit();
    this.phase = 'sent';
    const request = this.#request;
    const head = this.#head;
    this.#request = null;
    this.#head = null;
    if (request === null || head === null) return;
    const { body } = request;
    if (body === null) {
      connection.send(head);
      this.awaitHead();
      return;
    }
    try {
      this.#upload = new Http1Upload(request, body, head, connection, this);
    } catch (error) {
      this.end(error);
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
      this.end(error);
    }
  }

  onWhole(head: ReceivedHead, piece: Buffer | null, trailers: HeaderList): void {
    try {
      const body = this.#begin(head);
      if (body?.destroyed === true) return this.failed(clientLeft());
      // Everything is written at once, so that nobody waits for the body.
      if (body?.listenerCount('error') === 0) body.on('error', ignore);
      if (body !== null && piece !== null) body.write(piece);
      if (body !== null) this.#sink.onEnd(body, trailers);
      this.finish();
    } catch (error) {
      this.end(error);
    }
  }

  onHead(head: ReceivedHead): void {
    try {
      this.body = this.#begin(head);
      if (this.body === null) return this.startLimit(MAX_DISCARDING_MS, () => this.finish());
      this.body.on('error', () => this.failed(clientLeft()));
      this.awaitBody();
    } catch (error) {
      this.end(error);
    }
  }

  onData(piece: Buffer): void {
    if (this.body !== null) return this.pass(piece, this.body);
    this.#discarded += piece.length;
    // The rest is not worth reading.
    if (this.#discarded > MAX_DISCARDED_BYTES) this.finish();
  }

  onEnd(trailers: HeaderList): void {
    if (this.isSettled) return;
    try {
      if (this.body !== null) this.#sink.onEnd(this.body, trailers);
      this.finish();
    } catch (error) {
      this.end(error);
    }
  }

  onDrain(): void {
    this.#upload?.drained();
  }

  onFailure(error: Error): void {
    const isReused = this.#connection?.isReused === true;
    this.#connection = null;
    if (this.phase === 'responding' && this.body === null) {
      // Nobody wants what is missing.
      this.finish();
      return;
    }
    if (this.phase !== 'sent' || this.#upload?.hasBegun !== false) return this.failed(error);
    // The request still waited for its body. A kept connection may end at any time, which is no fault of the upstream.
    const code = isReused ? 'upstream-refused' : 'upstream-broken';
    this.failed(new ForwardError(code, 'unsent', error));
  }

  pause(): void {
    this.#connection?.pause();
  }

  resume(): void {
    this.#connection?.resume();
  }

  #begin({ status, headers }: ReceivedHead): Writable | null {
    this.beginResponse();
    this.#upload?.refuseBody();
    noteLength(this.client, status, headers);
    return this.#sink.onHead(status, headers, '1.1', this.method === 'HEAD');
  }

  protected release(): void {
    this.#upload?.stop();
    const connection = this.#connection;
    this.#connection = null;
    connection?.leave(this);
  }
}
