// Handlers see an exchange instead of Node's request and response, so they are the same over HTTP/1.1 and
// HTTP/2. A response has one head, which is sent in one place. Code that changes it (discovery, `header`,
// CORS, compression) registers a transform and never sees the socket. A head is marked `upstream` or
// `gateway`, so that discovery changes only responses of the app.

import type { ServerHttp2Stream } from 'node:http2';
import type { OnReadOpts, Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import type { LogFields, Logger } from '../kernel/log.ts';
import type { TraceContext } from './trace-context.ts';
import type { HeaderList } from './header-list.ts';
import type { Identity } from './identity.ts';
import { withoutSecretParts } from '../kernel/secret.ts';

/**
 * One request and its response, the same over HTTP/1.1 and HTTP/2. Handlers see nothing of the protocol: the
 * implementation handles fields that HTTP/2 forbids, statuses without a body, and the bytes of the head.
 */
export interface Exchange {
  /** Unique per request. It is in the log and in `X-Request-Id` of error responses. */
  readonly id: string;
  readonly log: Logger;
  /** The scheme of the connection itself; forwarded headers never change it. */
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  /** The method after changes by the directive `method`; {@link originalMethod} is the client's. */
  method: string;
  readonly originalMethod: string;
  /**
   * `Host` or `:authority` as the client sent it; it selected the site, and is part of all URLs, audiences and cookies that
   * the client sees. Empty if the request had none.
   */
  readonly originalHost: string;
  /** The same after changes by `request_header Host`, for placeholders, matchers and upstreams. */
  host: string;
  /** Path and query of the request in their canonical form (`canonical-target.ts`), still encoded. */
  readonly originalTarget: string;
  /** The same as the client spelled it, if upstreams are to get it unchanged; otherwise null. */
  readonly rawTarget: string | null;
  /** Path and query after the rewrites so far, also in their canonical form. */
  target: string;
  /** Fields of the request, without the HTTP/2 pseudo-header fields. Handlers may change them. */
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  /** The address of the client if the peer is a trusted proxy; otherwise `remoteAddress`. */
  readonly clientAddress: string;
  /** Body of the request. Ends at once if there is none. Handlers may replace it with a limiting stream. */
  body: Readable;
  /**
   * Lends the rest of the body to a reader that may destroy it. Whatever it has not received by then waits
   * for the next reader, or for readers of `body`. There is one reader at a time. Returns null if the message
   * cannot have a body.
   */
  lendBody(loan: BodyLease): LeasedBody | null;
  /** Whether no reader has received bytes of the body, so that another one can still get all of it. */
  readonly isBodyWhole: boolean;
  /** Whether a reader to which {@link lendBody} has lent the body has not ended. */
  readonly isBodyLent: boolean;
  /** False if the message cannot have a body (no length, no transfer coding, HTTP/2 END_STREAM). */
  readonly hasBody: boolean;
  /** Trailer fields of the request; complete once `body` has ended. */
  trailers(): HeaderList;
  /**
   * Gives up the rest of the body; called if the client sends it too slowly. The response does not wait for the rest of the body. If
   * it has begun, it is aborted.
   */
  discardBody(): void;
  /** Whether the client has left before the response was complete. */
  readonly abandoned: boolean;
  /**
   * Calls the listener once if the client leaves before the response is complete, or soon if it has left
   * already. The returned function removes the listener.
   */
  onAbandoned(listener: () => void): () => void;
  /** Aborted when {@link onAbandoned} calls its listeners; it costs more than that. */
  readonly signal: AbortSignal;
  /** The identity of the client as handlers have established it. Tokens are issued only on this basis. */
  readonly identity: Identity;
  /** Values of `{…}` placeholders that handlers have set for later ones. */
  readonly variables: Map<string, string>;

  /** The protocol that the client wants to switch to; null for an ordinary request. */
  readonly upgrade: UpgradeRequest | null;
  /**
   * Passes the connection of an HTTP/1.1 upgrade to the caller, which writes the head itself. The head has
   * passed all transforms, but body wrappers are not applied. The exchange counts as begun.
   *
   * @throws HubgateError `no-connection` without such an upgrade, `response-begun` if a head has been sent
   * before
   */
  takeOver(head: ResponseHead): void;

  /** Bytes of the response body that have been sent or wait for the client. */
  readonly responseBytes: number;
  /**
   * Whether the content of the response is not complete yet, although its handler is done: an encoder may still work. If so,
   * `listener` is called once when it is complete or cut off.
   */
  readonly awaitsSent?: (listener: () => void) => boolean;
  /**
   * Resolves when this request may have an effect: when the responses to earlier requests of the connection have been sent,
   * or when the client has left. null if it need not wait: there are none, or all of them and this one are safe (RFC 9112
   * §9.3.2).
   */
  readonly awaitTurn?: () => Promise<void> | null;
  /** For example `TLSv1.3`; null without TLS. */
  readonly tlsVersion: string | null;
  /** The upstream that responds, or that was tried last; null before. */
  upstream: UpstreamVisit | null;
  /** The position in a trace; null without tracing. */
  trace: TraceContext | null;

  /** True once the head of the response is being sent. */
  readonly begun: boolean;
  /** The sent status; 0 before. */
  readonly status: number;
  /**
   * Response fields that handlers set before there is a response. Fields with the same name in the response
   * replace them, except for `Vary` and unless the head says otherwise.
   */
  readonly preset: HeaderList;
  /**
   * Looks at a head before it is sent and before anything changes it. If the function returns a stream, it
   * takes the response: the body goes there, and the exchange has not begun after the returned function is
   * called. The last registered function looks first. It does not see the head of a tunnel, over HTTP/1.1 or
   * HTTP/2.
   */
  interceptHead(look: HeadInterceptor): () => void;
  /** Registers a change of the head just before it is sent. The last one registered runs first. */
  onHead(transform: HeadTransform): void;
  /** Withholds a field from the client: in informational responses, the head and the trailers. */
  withhold(names: readonly string[]): void;
  /**
   * Registers a reader for the trailer fields of the response. It runs before withheld fields are removed.
   */
  onTrailers(read: (trailers: HeaderList) => void): void;
  /** Sends a 1xx response other than 101. */
  inform(status: number, headers: HeaderList): void;
  /**
   * Sends the head and returns the stream for the body. The head is sent at once, not with the first byte of
   * the body. For HEAD, 204 and 304, written data is discarded.
   *
   * @throws HubgateError `response-begun` if the head has been sent before
   */
  begin(head: ResponseHead): Writable;
  /**
   * Sends the head of a response that is written piece by piece over a long time. Returns the stream that
   * costs least to keep open, which may be the connection itself. For HEAD, 204 and 304, written data is
   * discarded. The request must not be read afterwards.
   *
   * @throws HubgateError `response-begun` if the head has been sent before
   */
  stream(head: ResponseHead): ResponseStream;
  /**
   * Sets the trailer fields; called before the body ends. They are dropped if the protocol cannot carry them.
   */
  end(body: Writable, trailers: HeaderList): void;
  /**
   * Aborts the response, so that the client does not regard it as complete.
   *
   * @param body the stream that {@link begin} has returned to the caller. If routes replace its response, only that ends.
   */
  abort(body?: Writable | null): void;
  /**
   * Called by handlers that decide by more than the method, the URL and the fields in `Vary`: by these
   * request fields, by the client, or by a file. Present only if the response may be stored for others.
   *
   * @param field a field of the request to the app, in lower case, if only that depends on it. The app says with `Vary`
   * which of these fields it uses. The empty text is for something that `Vary` cannot name.
   */
  readonly dependsOn?: (on: Dependence, field?: string) => void;
  /** The client's request that this exchange replaces completely; absent on that request itself. */
  readonly standsFor?: Exchange;
}

/** Something that a response depends on and that a cache does not see. */
export type Dependence =
  | { readonly field: string }
  /** A variable of the request, which may have been set in front of the cache. */
  | { readonly variable: string }
  /** A preset field, in lower case, that a handler sets or removes, although one in front of the cache may have set it. */
  | { readonly preset: string }
  | 'client'
  | 'file'
  /** The end of the connection ends the body, so it may be cut. */
  | 'length';

/** The conditions under which a body is lent. */
export interface BodyLease {
  /** Called once, when the reader first asks for bytes. */
  readonly onWanted: () => void;
  /** How long the reader may leave bytes unread that wait for it; null for no limit. */
  readonly stall: WaitLimit | null;
}

/** A body that its reader may destroy. */
export interface LeasedBody extends Readable {
  /** True once it has received bytes. No other reader can get these bytes. */
  readonly consumed: boolean;
}

/** A limit on how long one side may let the other wait. */
export interface WaitLimit {
  readonly limitMs: number;
  readonly clock: Clock;
  /** Creates the error that a wait ends with when it was too long. */
  readonly over: () => Error;
}

/** The request to an upstream. */
export interface UpstreamVisit {
  readonly hostport: string;
  /** Time until the head of its response, or until the failure; 0 before. */
  latencyMs: number;
}

/** The destination of a response that is written piece by piece over a long time. */
export interface ResponseStream {
  /** The framing that the caller must apply: HTTP/1.1 chunks (RFC 9112 §7.1), or none. */
  readonly framing: 'chunked' | 'plain';
  /**
   * Accepts bytes with that framing, never empty ones, because an empty chunk is the last one. If it returns
   * false, wait for `drained`. One Buffer may be written to many streams and must not change. After the end,
   * nothing is accepted.
   */
  write(framed: Buffer): boolean;
  /** Bytes that were accepted but not yet passed to the operating system. */
  readonly bufferedBytes: number;
  /** Sets the listener; called once. */
  listen(listener: StreamListener): void;
  /** Ends cleanly after the written data. The implementation writes the last chunk. */
  end(): void;
  /** Aborts the response, so that the client does not regard it as complete. */
  destroy(): void;
}

export interface StreamListener {
  /** Number of events that have been written, for the log. */
  readonly events: number;
  /** Why the stream has ended, for the log; null while it is open. */
  readonly ended: string | null;
  /** The stream accepts bytes again after `write` has returned false. */
  drained(): void;
  /**
   * Nothing more is accepted. Called exactly once, however the stream ended, and never before `listen` has
   * returned.
   */
  closed(): void;
}

/** An HTTP/1.1 `Upgrade`, or an HTTP/2 extended CONNECT (RFC 8441). */
export type UpgradeRequest =
  | {
      readonly kind: 'http1';
      readonly socket: Socket;
      /** The bytes after the head of the request that have been read so far. */
      head: Buffer;
      /** Detaches the connection from the response that would otherwise be sent on it. */
      readonly release: () => void;
      /** From now on, the connection reads into the memory of `reader`, if this version of Node can do that. */
      readonly readInto: (reader: OnReadOpts) => void;
    }
  | { readonly kind: 'http2'; readonly protocol: string; readonly stream: ServerHttp2Stream };

export interface ResponseHead {
  status: number;
  readonly headers: HeaderList;
  /**
   * `upstream` for the site's pages, from the proxied app or from files; `gateway` for all responses of
   * hubgate itself.
   */
  readonly source: 'upstream' | 'gateway';
  /** Preset fields ({@link Exchange.preset}) with the same name stand before those of this response. */
  readonly isBesidePreset?: true;
  /** The response to an extended CONNECT that opens a tunnel. */
  readonly opensTunnel?: true;
  /** A 304 with all fields of its 200. The fields that describe the content are removed when it is sent. */
  readonly isUnchanged?: boolean;
  /**
   * Neither a body nor trailer fields follow, as after a request whose method has been changed to HEAD. The length is
   * then 0 for a client that has not sent HEAD. HTTP/2 signals the end in the frame of the head, which gRPC requires.
   */
  readonly isWhole?: boolean;
}

/**
 * Changes a head. It can return a function that wraps the body (for compression). A transform that needs a
 * response from elsewhere returns a promise, which must not reject: the head and the body wait for it. When a
 * connection is taken over, the head does not wait.
 */
export type HeadTransform = (head: ResponseHead) => BodyWrapper | Promise<void> | undefined;

/** Returns the destination of a body that is not for the client; null lets the response pass. */
export type HeadInterceptor = (head: ResponseHead) => Writable | null;

/** Takes the destination of the encoded bytes and returns the stream for the plain bytes. */
export type BodyWrapper = (body: Writable) => Writable;

/**
 * Responds to the exchange, or calls `next`. If it throws an {@link HttpError}, the response has its status.
 */
export type Handler = (exchange: Exchange, next: Next) => void | Promise<void>;

/** Prepares a request before the routes of its site run, and often the head of its response. It responds to none. */
export type RequestHook = (exchange: Exchange) => void;

/**
 * Runs the handlers after this one. Returns or resolves when one of them has responded, or when the last one
 * has called its `next`. They get the same exchange, or the one that replaces it from here on.
 */
export type Next = (exchange?: Exchange) => void | Promise<void>;

/**
 * Replaces the `{…}` placeholders in a template with their values for this exchange. Placeholders of the
 * response are replaced only if its fields are given. If `encode` is given, each value passes through it,
 * with the short name of its placeholder; the text around the placeholders does not. What a placeholder reads is something that the response depends on,
 * unless the text is for `field` of the request to the app: see {@link Exchange.dependsOn}.
 */
export type Expand = (
  template: string,
  exchange: Exchange,
  response?: HeaderList,
  encode?: (value: string, name: string) => string,
  field?: string,
) => string;

/** Characters of a host or a path that a log line contains. */
const MAX_SHOWN = 256;

/**
 * The fields of a log line that identify the request, as the client sent it and the access log names it. They do not include
 * the query.
 */
export function about(
  { originalHost, originalTarget, originalMethod, upstream }: Exchange,
  fields: LogFields,
): LogFields {
  const [path = ''] = originalTarget.split('?', 1);
  return {
    method: originalMethod,
    host: originalHost.slice(0, MAX_SHOWN),
    path: withoutSecretParts(path.slice(0, MAX_SHOWN), 'REDACTED'),
    ...(upstream === null ? {} : { upstream: upstream.hostport }),
    ...fields,
  };
}
