import { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { buildConnector, type Dispatcher, Pool } from 'undici';
import { HeaderList } from '../http/header-list.ts';
import { BodyFlow, type FlowListener, type Source } from './body-flow.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { UpstreamAddress } from './address.ts';
import { exchangeFailure, ForwardError, type ForwardPhase } from './forward-error.ts';
import {
  type Connections,
  type ForwardRequest,
  type ForwardSink,
  MAX_HEAD_BYTES,
  MAX_STALL_MS,
  MAX_WAITING_REQUESTS,
  noteLength,
  type RequestingClient,
  type TransportSettings,
} from './forwarding.ts';
import { Semaphore } from '../kernel/semaphore.ts';
import { upstreamReads } from './upstream-reads.ts';
import { upstreamWrites } from './upstream-writes.ts';

/** Bytes of an unwanted response body that are read in order to keep the connection. */
const MAX_DISCARDED_BYTES = 64 * 1024;

/** HTTP/1.1 connections to one upstream. This is the only code that uses the HTTP client. */
export class ConnectionPool implements Connections {
  readonly #pool: Pool;
  readonly #serverName: string;
  /**
   * null: no limit. Requests queue here and not in the HTTP client, so that a client that leaves is also
   * removed from the queue.
   */
  readonly #turns: Semaphore | null;
  /** Without TLS, written memory is not copied; TLS copies it. */
  readonly #isPlain: boolean;

  /**
   * `trustPool` contains the PEM certificates that HTTPS is verified against; null: those of the platform.
   */
  constructor(address: UpstreamAddress, settings: TransportSettings, trustPool: string | null) {
    this.#serverName = settings.tlsServerName ?? address.hostname;
    const limit = settings.maxConnectionsPerHost;
    this.#turns = limit === 0 ? null : new Semaphore(limit);
    this.#isPlain = address.protocol === 'http:';
    this.#pool = new Pool(`${address.protocol}//${address.authority}`, {
      connect: dialer(address, settings, trustPool),
      connections: limit === 0 ? null : limit,
      pipelining: settings.keepAliveMs === 0 ? 0 : 1,
      ...(settings.keepAliveMs === 0 ? {} : { keepAliveTimeout: settings.keepAliveMs }),
      headersTimeout: settings.responseHeaderTimeoutMs,
      bodyTimeout: settings.readTimeoutMs,
      maxHeaderSize: MAX_HEAD_BYTES,
      strictContentLength: true,
    });
  }

  forward(request: ForwardRequest, sink: ForwardSink): Promise<void> {
    return this.#turns === null
      ? this.#dispatch(request, sink)
      : this.#forwardInTurn(this.#turns, request, sink);
  }

  /** @throws ForwardError `upstream-busy`, `upstream-aborted` */
  async #forwardInTurn(
    turns: Semaphore,
    request: ForwardRequest,
    sink: ForwardSink,
  ): Promise<void> {
    if (turns.waiting >= MAX_WAITING_REQUESTS) {
      const full = new HubgateError(
        'upstream-busy',
        `${MAX_WAITING_REQUESTS} requests are already waiting`,
      );
      throw new ForwardError('upstream-busy', 'unsent', full);
    }
    await turns.acquire((cancel) =>
      request.client.onAbandoned(() => {
        const left = new HubgateError(
          'client-left',
          'The client disconnected while its request waited',
        );
        cancel(new ForwardError('upstream-aborted', 'unsent', left));
      }),
    );
    try {
      await this.#dispatch(request, sink);
    } finally {
      turns.release();
    }
  }

  #dispatch(request: ForwardRequest, sink: ForwardSink): Promise<void> {
    if (this.#isPlain && request.body !== null) upstreamWrites.own(request.body);
    return new Promise((resolve, reject) => {
      const handler = new ForwardHandler(request, sink, resolve, reject);
      const options = {
        method: request.method,
        path: request.target,
        headers: framedFields(request),
        body: request.body,
        // Otherwise the certificate would be checked against the client's Host.
        servername: this.#serverName,
      };
      this.#pool.dispatch(options, handler);
    });
  }

  close(): void {
    this.#pool.close().catch(() => {
      // Only reports that the pool has been destroyed in the meantime.
    });
  }

  destroy(): void {
    this.#pool.destroy().catch(() => {
      // Only reports that the pool has been destroyed before.
    });
  }
}

function dialer(
  address: UpstreamAddress,
  settings: TransportSettings,
  trustPool: string | null,
): buildConnector.connector {
  const dial = buildConnector({
    timeout: settings.dialTimeoutMs,
    rejectUnauthorized: !settings.tlsInsecureSkipVerify,
    ...(trustPool === null ? {} : { ca: trustPool }),
    ...(address.socketPath === null ? {} : { socketPath: address.socketPath }),
    // TLS delivers 16 KiB at a time, in a buffer of that size.
    ...(address.protocol === 'http:' ? upstreamReads.socketOptions : {}),
    allowH2: false,
  });
  if (address.protocol === 'http:') {
    return (options, done) => {
      dial(options, (...result) => {
        const [, socket] = result;
        if (socket instanceof Socket) upstreamWrites.watch(socket);
        done(...result);
      });
    };
  }
  const name = settings.tlsServerName;
  return (options, done) => {
    const { servername: _, ...rest } = options;
    // Without a name, the connector uses the upstream's own, and none for an IP address.
    dial(name === null ? rest : { ...rest, servername: name }, done);
  };
}

/**
 * Whether the HTTP client has refused an unexpected 100, which RFC 9110 §15.2 requires it to parse. Its error
 * contains nothing else. No part of the response had arrived before.
 */
export function isUnaskedContinue(error: unknown): boolean {
  return (
    error instanceof ForwardError &&
    error.phase === 'sent' &&
    codeOf(error.cause) === 'UND_ERR_SOCKET' &&
    messageOf(error.cause) === 'bad response'
  );
}

/**
 * Whether the HTTP client has refused a length that frames nothing after the whole body had arrived: that of
 * a response without content (RFC 9110 §8.6), or one among the trailer fields (§6.5.1). The trailer fields
 * are then lost.
 */
function isStrayLength(error: Error, framing: 'none' | 'chunks' | 'other'): boolean {
  switch (framing) {
    case 'none':
      return codeOf(error) === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH';
    case 'chunks':
      // After the head, a field can only follow the last chunk, so the body cannot be incomplete.
      return error.name === 'HTTPParserError' && error.message.includes(STRAY_LENGTH);
    case 'other':
      return false;
  }
}

/** The error of the HTTP client's embedded parser for a length among trailer fields. */
const STRAY_LENGTH = "Content-Length can't be present with Transfer-Encoding";

/** The fields with the one framing of the message; the client itself writes the chunked one. */
function framedFields(request: ForwardRequest): string[] {
  const fields = request.headers.toRaw();
  if (request.contentLength !== null) fields.push('Content-Length', request.contentLength);
  return fields;
}

/** The course of one exchange. It is the source of the response's body, and listens to its flow. */
class ForwardHandler implements Dispatcher.DispatchHandler, Source, FlowListener {
  readonly #client: RequestingClient;
  readonly #clock: Clock;
  readonly #forgetClient: () => void;
  readonly #sink: ForwardSink;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;
  #controller: Dispatcher.DispatchController | undefined;
  #phase: ForwardPhase = 'unsent';
  #body: Writable | null = null;
  #flow: BodyFlow | null = null;
  #framing: 'none' | 'chunks' | 'other' = 'other';
  #discarded = 0;
  /** An error that a callback has thrown. It ends the exchange and is passed to the caller. */
  #thrown: { readonly error: unknown } | undefined;
  #settled = false;
  /** Ends the wait for a client that reads nothing. */
  #stopStall = nothing;

  constructor(
    { client, clock }: ForwardRequest,
    sink: ForwardSink,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    this.#client = client;
    this.#clock = clock;
    this.#sink = sink;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#forgetClient = client.onAbandoned(this.#onAbort);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#client.abandoned) controller.abort(abortReason());
    else this.#phase = 'sent';
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    try {
      const headers = rawFields(controller.rawHeaders);
      if (status < 200) {
        this.#sink.onInformation(status, headers, '1.1');
        return;
      }
      this.#phase = 'responding';
      if (status === 204 || status === 304) this.#framing = 'none';
      else if (headers.has('transfer-encoding')) this.#framing = 'chunks';
      noteLength(this.#client, status, headers);
      this.#body = this.#sink.onHead(status, headers, '1.1');
      this.#body?.on('error', this.#onBodyError);
      if (this.#body !== null) this.#flow = new BodyFlow(this.#body, this, this);
    } catch (error) {
      this.#throw(error, controller);
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    const body = this.#body;
    upstreamReads.delivered(chunk);
    if (body === null) {
      this.#discarded += chunk.length;
      if (this.#discarded > MAX_DISCARDED_BYTES) this.#finish(controller);
      return;
    }
    if (body.destroyed) controller.abort(abortReason());
    else {
      this.#flow?.write(chunk);
      if (this.#flow?.isHeld === false) upstreamReads.continued(chunk);
    }
  }

  pause(): void {
    this.#controller?.pause();
  }

  /**
   * This may be called while the parser handles another response of the same connection, and the parser must
   * not run recursively.
   */
  resume(): void {
    queueMicrotask(() => this.#controller?.resume());
  }

  held(): void {
    this.taken();
  }

  taken(): void {
    this.#stopStall();
    if (this.#settled) return;
    this.#stopStall = this.#clock.after(MAX_STALL_MS, () => this.#controller?.abort(stalled()));
  }

  freed(): void {
    this.#stopStall();
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    try {
      if (this.#body !== null) this.#sink.onEnd(this.#body, rawFields(controller.rawTrailers));
      this.#settle();
      this.#resolve();
    } catch (error) {
      this.#throw(error, controller);
    }
  }

  onResponseError(controller: Dispatcher.DispatchController | undefined, error: Error): void {
    if (this.#settled) return;
    const isComplete = isStrayLength(error, this.#framing) && !this.#client.abandoned;
    if (isComplete && controller !== undefined) this.onResponseEnd(controller);
    if (this.#settled) return;
    this.#settle();
    if (this.#thrown !== undefined) this.#reject(this.#thrown.error);
    else {
      const left = this.#client.abandoned || this.#body?.destroyed === true;
      this.#reject(exchangeFailure(error, this.#phase, left));
    }
  }

  /** Ends the exchange with an error of the sink. */
  #throw(error: unknown, controller: Dispatcher.DispatchController): void {
    this.#thrown = { error };
    controller.abort(abortReason());
  }

  /** The rest of an unwanted body is not worth reading. */
  #finish(controller: Dispatcher.DispatchController): void {
    this.#settle();
    this.#resolve();
    controller.abort(abortReason());
  }

  readonly #onBodyError = (): void => {
    this.#controller?.abort(abortReason());
  };

  readonly #onAbort = (): void => {
    if (this.#controller !== undefined) {
      this.#controller.abort(abortReason());
      return;
    }
    // It is still queued behind others. The queue removes it in its turn.
    this.#settle();
    this.#reject(new ForwardError('upstream-aborted', 'unsent', abortReason()));
  };

  #settle(): void {
    this.#settled = true;
    this.#flow?.end();
    this.#stopStall();
    this.#forgetClient();
  }
}

function stalled(): Error {
  return new HubgateError('client-left', `The client read nothing within ${MAX_STALL_MS} ms`);
}

function abortReason(): Error {
  return new HubgateError('upstream-aborted', 'The exchange was aborted');
}

function rawFields(raw: Dispatcher.DispatchController['rawHeaders']): HeaderList {
  return Array.isArray(raw) ? HeaderList.fromRaw(raw) : new HeaderList();
}

function nothing(): void {}
