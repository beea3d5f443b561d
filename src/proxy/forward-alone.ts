import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Readable, Writable } from 'node:stream';
import { HeaderList } from '../http/header-list.ts';
import { HubgateError } from '../kernel/error.ts';
import {
  exchangeFailure,
  type ForwardRequest,
  type ForwardSink,
  MAX_HEAD_BYTES,
  MAX_STALL_MS,
} from './forward.ts';
import { ForwardError, type ForwardPhase } from './forward-error.ts';
import { permittedTrailers } from './trailers.ts';
import { type DialTarget, tlsOptions } from './upgrade-request.ts';

/**
 * Milliseconds in which an upstream may say what it thinks of an expectation. RFC 9110 §10.1.1 lets
 * nobody wait for ever: there are upstreams that know nothing of 100.
 */
const CONTINUE_WAIT_MS = 1000;

/** A request; with `Expect` among its fields the body waits until the upstream asks for it. */
export interface LoneRequest extends ForwardRequest {
  /** The fields that `Trailer` announces, complete once the body has ended. */
  trailers(): HeaderList;
}

/**
 * Exchanges one request that the HTTP client of the others cannot: one that ends in trailer fields
 * (RFC 9112 §7.1.2), that expects 100 (RFC 9110 §10.1.1), or whose upstream sends 100 unasked. It
 * gets a connection of its own, that `max_conns_per_host` does not count. Resolves when the
 * response is complete; back-pressure holds both ways.
 *
 * @throws ForwardError
 * @throws HttpError with which the body ended; whatever the sink throws
 */
export function forwardAlone(
  target: DialTarget,
  request: LoneRequest,
  sink: ForwardSink,
): Promise<void> {
  return new Promise((resolve, reject) => {
    new LoneExchange(target, request, sink, resolve, reject).start();
  });
}

class LoneExchange {
  readonly #target: DialTarget;
  readonly #request: LoneRequest;
  readonly #sink: ForwardSink;
  readonly #resolve: () => void;
  readonly #reject: (error: unknown) => void;
  #outgoing: ClientRequest | undefined;
  #phase: ForwardPhase = 'unsent';
  #timer: NodeJS.Timeout | undefined;
  #isBodyWanted = false;
  #stopWaiting: () => void = () => {};
  #forgetClient: () => void = () => {};
  #settled = false;

  constructor(
    target: DialTarget,
    request: LoneRequest,
    sink: ForwardSink,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    this.#target = target;
    this.#request = request;
    this.#sink = sink;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  start(): void {
    const { client } = this.#request;
    if (client.abandoned) {
      this.#onAbort();
      return;
    }
    this.#forgetClient = client.onAbandoned(this.#onAbort);
    this.#limit(this.#target.settings.dialTimeoutMs, 'no connection');
    this.#guard(() => this.#open());
  }

  #open(): void {
    const outgoing = openRequest(this.#target, this.#request);
    this.#outgoing = outgoing;
    outgoing.once('socket', (socket) => {
      // Node writes a head with Expect by the default, and fields are bytes.
      socket.setDefaultEncoding('latin1');
      const connected = 'encrypted' in socket ? 'secureConnect' : 'connect';
      socket.once(connected, () => this.#guard(() => this.#begin(outgoing)));
    });
    outgoing.on('information', ({ statusCode, rawHeaders }) => {
      this.#guard(() => {
        if (statusCode === 100) this.#wantBody(outgoing);
        else this.#sink.onInformation(statusCode, HeaderList.fromRaw(rawHeaders));
      });
    });
    outgoing.once('response', (response) => this.#guard(() => this.#receive(response)));
    // Once the response has begun, it is the response that tells whether it is complete.
    outgoing.on('error', (error) => {
      if (this.#phase !== 'responding') this.#fail(error);
    });
    outgoing.once('close', () => {
      if (this.#phase !== 'responding') this.#fail(broken('The upstream closed the connection'));
    });
  }

  /** Takes the body only now, so that a request that nobody could be given can go elsewhere. */
  #begin(outgoing: ClientRequest): void {
    const { headers, clock } = this.#request;
    this.#phase = 'sent';
    this.#limit(0);
    if (!headers.has('expect')) this.#wantBody(outgoing);
    else {
      // The head has gone out by itself: Node sends one with Expect at once.
      this.#stopWaiting = clock.after(CONTINUE_WAIT_MS, () =>
        this.#guard(() => this.#wantBody(outgoing)),
      );
    }
  }

  /** Once; a 100 that comes late, again or unasked says nothing new. */
  #wantBody(outgoing: ClientRequest): void {
    if (this.#isBodyWanted) return;
    this.#isBodyWanted = true;
    this.#stopWaiting();
    const { body } = this.#request;
    if (body !== null) {
      this.#send(outgoing, body);
      return;
    }
    outgoing.end();
    this.#awaitHead();
  }

  #send(outgoing: ClientRequest, body: Readable): void {
    body.on('error', (error) => this.#fail(error));
    body.on('data', (chunk: Buffer) => {
      if (outgoing.write(chunk)) return;
      body.pause();
      this.#awaitHead();
    });
    outgoing.on('drain', () => {
      if (this.#phase === 'sent') this.#limit(0);
      body.resume();
    });
    body.once('end', () => {
      this.#guard(() => {
        const trailers = permittedTrailers(this.#request.headers, this.#request.trailers());
        outgoing.addTrailers([...trailers].map(([name, value]): [string, string] => [name, value]));
        outgoing.end();
        this.#awaitHead();
      });
    });
  }

  #receive(response: IncomingMessage): void {
    const { statusCode = 0, rawHeaders } = response;
    response.on('error', (error) => this.#fail(error));
    if (statusCode < 200) {
      this.#fail(broken('The upstream switched protocols unasked'));
      return;
    }
    this.#phase = 'responding';
    this.#limit(0);
    // RFC 9110 §10.1.1: answered so, the request needs no body.
    this.#stopWaiting();
    const body = this.#sink.onHead(statusCode, HeaderList.fromRaw(rawHeaders));
    if (body === null) this.#finish();
    else this.#pass(response, body);
  }

  #pass(response: IncomingMessage, body: Writable): void {
    body.on('error', (error) => this.#fail(clientLeft(error)));
    this.#awaitBody();
    response.on('data', (chunk: Buffer) => {
      if (body.destroyed) {
        this.#fail(clientLeft());
      } else if (body.write(chunk)) {
        this.#awaitBody();
      } else {
        // The silence of an upstream that is not asked is no fault of its own.
        this.#limit(0);
        response.pause();
        this.#stopWaiting = this.#request.clock.after(MAX_STALL_MS, () => this.#fail(clientLeft()));
        body.once('drain', () => {
          this.#stopWaiting();
          this.#awaitBody();
          response.resume();
        });
      }
    });
    response.once('end', () => {
      this.#guard(() => {
        this.#sink.onEnd(body, HeaderList.fromRaw(response.rawTrailers));
        this.#finish();
      });
    });
  }

  #awaitHead(): void {
    if (this.#phase === 'sent') {
      this.#limit(this.#target.settings.responseHeaderTimeoutMs, 'no response');
    }
  }

  #awaitBody(): void {
    this.#limit(this.#target.settings.readTimeoutMs, 'no more of the response');
  }

  /** Starts the one time limit that holds now; 0 for none. */
  #limit(ms: number, missing = ''): void {
    clearTimeout(this.#timer);
    if (ms === 0 || this.#settled) return;
    this.#timer = setTimeout(() => {
      this.#fail(new HubgateError('upstream-timeout', `${missing} within ${ms} ms`));
    }, ms);
  }

  /** What a callback of ours throws ends the exchange and goes to the caller. */
  #guard(task: () => void): void {
    if (this.#settled) return;
    try {
      task();
    } catch (error) {
      this.#settle();
      this.#reject(error);
    }
  }

  #finish(): void {
    this.#settle();
    this.#resolve();
  }

  #fail(error: Error): void {
    if (this.#settled) return;
    this.#settle();
    this.#reject(exchangeFailure(error, this.#phase, this.#request.client.abandoned));
  }

  readonly #onAbort = (): void => this.#fail(clientLeft());

  /** The connection is of no more use either way: the request may not have been read to its end. */
  #settle(): void {
    this.#settled = true;
    clearTimeout(this.#timer);
    this.#stopWaiting();
    this.#forgetClient();
    this.#outgoing?.destroy();
  }
}

/** @throws ForwardError `unsendable-request` */
function openRequest(target: DialTarget, request: LoneRequest): ClientRequest {
  const { address, settings } = target;
  const secure = address.protocol === 'https:';
  try {
    return (secure ? httpsRequest : httpRequest)({
      method: request.method,
      host: address.hostname,
      port: address.port,
      path: request.target,
      headers: [...request.headers.toRaw(), ...framing(request)],
      agent: false,
      maxHeaderSize: MAX_HEAD_BYTES,
      ...(address.socketPath === null ? {} : { socketPath: address.socketPath }),
      ...(secure
        ? { ...tlsOptions(target), rejectUnauthorized: !settings.tlsInsecureSkipVerify }
        : {}),
    });
  } catch (error) {
    throw new ForwardError('unsendable-request', 'unsent', error);
  }
}

/** Chunks whatever length was declared where trailer fields follow: only they can carry them. */
function framing({ headers, body, contentLength }: LoneRequest): string[] {
  if (body === null) return [];
  if (contentLength === null || headers.has('trailer')) return ['Transfer-Encoding', 'chunked'];
  return ['Content-Length', contentLength];
}

function clientLeft(cause?: Error): Error {
  return new HubgateError('client-left', 'The exchange was broken off', { cause });
}

function broken(message: string): Error {
  return new HubgateError('upstream-broken', message);
}
