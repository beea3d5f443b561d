import type { Readable, Writable } from 'node:stream';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { ReverseProxyConfig } from './proxy-config.ts';
import type { Exchange } from '../http/exchange.ts';

export type TransportSettings = ReverseProxyConfig['transport'];

/** Bytes of a response head; the same as the gateway lets its clients send. */
export const MAX_HEAD_BYTES = 80 * 1024;

/**
 * Milliseconds in which an upstream may say what it thinks of an expectation. RFC 9110 §10.1.1 lets
 * nobody wait for ever: there are upstreams that know nothing of 100.
 */
export const CONTINUE_WAIT_MS = 1000;

/** Requests that wait for a connection to one upstream; those beyond are refused with 503. */
export const MAX_WAITING_REQUESTS = 1_000;

/** How long a client may take nothing of a response that waits for it. */
export const MAX_STALL_MS = 120_000;

/**
 * A request as it goes to the upstream: `headers` hold no field that frames it. With `Expect` among
 * them the body waits until the upstream asks for it.
 */
export interface ForwardRequest {
  readonly method: string;
  readonly target: string;
  readonly headers: HeaderList;
  readonly body: Readable | null;
  /** The length that the client declared; null sends a body in chunks. */
  readonly contentLength: string | null;
  /** The fields that `Trailer` announces, complete once the body has ended. */
  trailers(): HeaderList;
  readonly client: RequestingClient;
  readonly clock: Clock;
}

/** How a response was received; of HTTP/1.0 the HTTP client does not tell. */
export type ReceivedProtocol = '1.1' | '2.0';

/** Takes the response. */
export interface ForwardSink {
  /** A 1xx response. */
  onInformation(status: number, headers: HeaderList, received: ReceivedProtocol): void;
  /**
   * The head; returns where the body goes, or null when it is not wanted. `isWhole`: the head was said to
   * be all of the response.
   */
  onHead(
    status: number,
    headers: HeaderList,
    received: ReceivedProtocol,
    isWhole?: boolean,
  ): Writable | null;
  /** The complete body has been written to `body`, which is to be ended. */
  onEnd(body: Writable, trailers: HeaderList): void;
}

/** The connections to one upstream, whatever version of HTTP they speak. */
export interface Connections {
  /**
   * Exchanges one request. Resolves when the response is complete; back-pressure holds both ways.
   * Where connections are limited it waits for one, until the client leaves.
   *
   * @throws ForwardError; `upstream-busy` when too many wait
   * @throws HttpError with which the body ended; whatever the sink throws
   */
  forward(request: ForwardRequest, sink: ForwardSink): Promise<void>;
  /** Lets exchanges under way finish, then closes. */
  close(): void;
  /** Breaks every exchange off. */
  destroy(): void;
}

/** Who waits for the response, as an exchange tells of it. */
export type RequestingClient = Pick<Exchange, 'abandoned' | 'onAbandoned'>;
