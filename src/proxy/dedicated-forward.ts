import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Readable, Writable } from 'node:stream';
import { HeaderList } from '../http/header-list.ts';
import { broken, clientLeft, RequestLifecycle } from './request-lifecycle.ts';
import {
  CONTINUE_WAIT_MS,
  type ForwardRequest,
  type ForwardSink,
  MAX_HEAD_BYTES,
  noteLength,
} from './forwarding.ts';
import { ForwardError } from './forward-error.ts';
import { permittedTrailers } from './trailers.ts';
import { type DialTarget, tlsOptions } from './upgrade-request.ts';

/**
 * Exchanges one request that the ordinary HTTP client cannot: one that ends with trailer fields (RFC 9112
 * §7.1.2), that expects 100 (RFC 9110 §10.1.1), or whose upstream sends an unexpected 100. It gets a
 * connection of its own, which does not count for `max_conns_per_host`. Resolves when the response is
 * complete; back-pressure works in both directions.
 *
 * @throws ForwardError
 * @throws HttpError with which the body ended; the errors of the sink
 */
export function forwardOnDedicatedConnection(
  target: DialTarget,
  request: ForwardRequest,
  sink: ForwardSink,
): Promise<void> {
  return new Promise((resolve, reject) => {
    new LoneExchange(target, request, sink, resolve, reject).start();
  });
}

class LoneExchange {
  readonly #target: DialTarget;
  readonly #request: ForwardRequest;
  readonly #sink: ForwardSink;
  readonly #lifecycle: RequestLifecycle;
  #outgoing: ClientRequest | undefined;
  #isBodyWanted = false;
  #stopWaiting: () => void = () => {};

  constructor(
    target: DialTarget,
    request: ForwardRequest,
    sink: ForwardSink,
    resolve: () => void,
    reject: (error: unknown) => void,
  ) {
    this.#target = target;
    this.#request = request;
    this.#sink = sink;
    this.#lifecycle = new RequestLifecycle(request, resolve, reject, () => {
      this.#stopWaiting();
      // Of no further use in either case: the request may not have been read completely.
      this.#outgoing?.destroy();
    });
  }

  start(): void {
    this.#lifecycle.start(() => {
      this.#lifecycle.limit(this.#target.settings.dialTimeoutMs, 'no connection');
      this.#open();
    });
  }

  #open(): void {
    const outgoing = openRequest(this.#target, this.#request);
    const lifecycle = this.#lifecycle;
    this.#outgoing = outgoing;
    outgoing.once('socket', (socket) => {
      // Node writes a head with Expect in the default encoding, but fields are bytes.
      socket.setDefaultEncoding('latin1');
      const connected = 'encrypted' in socket ? 'secureConnect' : 'connect';
      socket.once(connected, () => lifecycle.guard(() => this.#begin(outgoing)));
    });
    outgoing.on('information', ({ statusCode, rawHeaders }) => {
      lifecycle.guard(() => {
        if (statusCode === 100) this.#wantBody(outgoing);
        else this.#sink.onInformation(statusCode, HeaderList.fromRaw(rawHeaders), '1.1');
      });
    });
    outgoing.once('response', (response) => lifecycle.guard(() => this.#receive(response)));
    // Once the response has begun, the response itself shows whether it is complete.
    outgoing.on('error', (error) => {
      if (lifecycle.phase !== 'responding') lifecycle.fail(error);
    });
    outgoing.once('close', () => {
      if (lifecycle.phase !== 'responding')
        lifecycle.fail(broken('The upstream closed the connection'));
    });
  }

  /** Takes the body only now. A request that no upstream received can then be sent to another one. */
  #begin(outgoing: ClientRequest): void {
    const { headers, clock } = this.#request;
    this.#lifecycle.phase = 'sent';
    this.#lifecycle.limit(0);
    if (!headers.has('expect')) this.#wantBody(outgoing);
    else {
      // The head has already been sent: Node sends one with Expect at once.
      this.#stopWaiting = clock.after(CONTINUE_WAIT_MS, () =>
        this.#lifecycle.guard(() => this.#wantBody(outgoing)),
      );
    }
  }

  /** Once; a late, repeated or unexpected 100 has no further effect. */
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
    this.#lifecycle.send(body, outgoing, () => this.#awaitHead());
    body.once('end', () => {
      this.#lifecycle.guard(() => {
        const trailers = permittedTrailers(this.#request.headers, this.#request.trailers());
        outgoing.addTrailers([...trailers].map(([name, value]): [string, string] => [name, value]));
        outgoing.end();
        this.#awaitHead();
      });
    });
  }

  #receive(response: IncomingMessage): void {
    const { statusCode = 0, rawHeaders } = response;
    response.on('error', (error) => this.#lifecycle.fail(error));
    if (statusCode < 200)
      throw broken('The upstream switched protocols without an upgrade request');
    this.#lifecycle.phase = 'responding';
    this.#lifecycle.limit(0);
    // RFC 9110 §10.1.1: with a final response, the request needs no body.
    this.#stopWaiting();
    const headers = HeaderList.fromRaw(rawHeaders);
    noteLength(this.#request.client, statusCode, headers);
    const body = this.#sink.onHead(statusCode, headers, '1.1');
    if (body === null) this.#lifecycle.finish();
    else this.#pass(response, body);
  }

  #pass(response: IncomingMessage, body: Writable): void {
    const { readTimeoutMs } = this.#target.settings;
    body.on('error', (error) => this.#lifecycle.fail(clientLeft(error)));
    this.#lifecycle.awaitBody(readTimeoutMs);
    response.on('data', (chunk: Buffer) => {
      this.#lifecycle.pass(chunk, body, response, readTimeoutMs);
    });
    response.once('end', () => {
      this.#lifecycle.guard(() => {
        this.#sink.onEnd(body, HeaderList.fromRaw(response.rawTrailers));
        this.#lifecycle.finish();
      });
    });
  }

  #awaitHead(): void {
    if (this.#lifecycle.phase !== 'sent') return;
    this.#lifecycle.limit(this.#target.settings.responseHeaderTimeoutMs, 'no response');
  }
}

/** @throws ForwardError `unsendable-request` */
function openRequest(target: DialTarget, request: ForwardRequest): ClientRequest {
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

/** In chunks, whatever length was declared, if trailer fields follow: only chunks can carry them. */
function framing({ headers, body, contentLength }: ForwardRequest): string[] {
  if (body === null) return [];
  if (contentLength === null || headers.has('trailer')) return ['Transfer-Encoding', 'chunked'];
  return ['Content-Length', contentLength];
}
