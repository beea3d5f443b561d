import type { Readable, Writable } from 'node:stream';
import type { HeaderList } from '../http/header-list.ts';
import type { Clock } from '../kernel/clock.ts';
import type { ReverseProxyConfig } from './proxy-config.ts';
import type { Exchange } from '../http/exchange.ts';

export type TransportSettings = ReverseProxyConfig['transport'];

/** Largest response head in bytes; the same limit as for the requests of clients. */
export const MAX_HEAD_BYTES = 80 * 1024;

/**
 * Milliseconds in which an upstream may react to an expectation. RFC 9110 §10.1.1 forbids waiting forever,
 * because some upstreams do not know 100.
 */
export const CONTINUE_WAIT_MS = 1000;

/** How long a client may leave a waiting response unread. */
export const MAX_STALL_MS = 120_000;

/**
 * A request to the upstream; `headers` contain no field that frames it. If they contain `Expect`, the body
 * waits until the upstream asks for it.
 */
export interface ForwardRequest {
  readonly method: string;
  readonly target: string;
  readonly headers: HeaderList;
  readonly body: Readable | null;
  /** The length that the client declared; null sends a body in chunks. */
  readonly contentLength: string | null;
  /** The fields that `Trailer` announces; complete when the body has ended. */
  trailers(): HeaderList;
  readonly client: RequestingClient;
  readonly clock: Clock;
  /** An attempt has failed, perhaps because a kept connection had just ended. This one gets a new connection. */
  readonly isRepeated: boolean;
}

/** Informational responses to one request. */
export const MAX_INFORMATIONAL = 1000;

/** The protocol of a response; HTTP/1.0 counts as 1.1. */
export type ReceivedProtocol = '1.1' | '2.0';

export interface ForwardSink {
  /** A 1xx response. */
  onInformation(status: number, headers: HeaderList, received: ReceivedProtocol): void;
  /**
   * The head. Returns the stream for the body, or null if the body is not wanted. `isWhole`: the response
   * consists only of the head.
   */
  onHead(
    status: number,
    headers: HeaderList,
    received: ReceivedProtocol,
    isWhole?: boolean,
  ): Writable | null;
  /** The complete body has been written to `body`, which must now be ended. */
  onEnd(body: Writable, trailers: HeaderList): void;
}

/** The connections to one upstream, with any version of HTTP. */
export interface Connections {
  /**
   * Exchanges one request. Resolves when the response is complete; back-pressure works in both directions. If
   * connections are limited, it waits for one, until the client leaves.
   *
   * @throws ForwardError; `upstream-busy` if too many wait
   * @throws HttpError with which the body ended; the errors of the sink
   */
  forward(request: ForwardRequest, sink: ForwardSink): Promise<void>;
  /** Lets exchanges in progress finish, then closes. */
  close(): void;
  /** Aborts every exchange. */
  destroy(): void;
}

/** The client that waits for the response, from the view of an exchange. */
export type RequestingClient = Pick<Exchange, 'abandoned' | 'onAbandoned' | 'dependsOn'>;

/** RFC 9112 §8: nothing shows that a body without length and chunks was cut. */
export function noteLength(
  { dependsOn }: RequestingClient,
  status: number,
  headers: HeaderList,
): void {
  if (dependsOn === undefined || status === 204 || status === 304) return;
  if (!headers.has('content-length') && !headers.has('transfer-encoding')) dependsOn('length');
}
