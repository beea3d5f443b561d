// Handlers see an exchange instead of Node's request and response, so they are the same over
// HTTP/1.1 and HTTP/2. A response has one head, sent in one place: whatever changes it (discovery,
// `header`, CORS, compression) registers a transform and never sees the socket. A head is marked
// `upstream` or `gateway`, so that discovery changes only what the app answered.

import type { IncomingMessage } from 'node:http';
import type { ServerHttp2Stream } from 'node:http2';
import type { Duplex, Readable, Writable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import type { LogFields, Logger } from '../kernel/log.ts';
import type { TraceContext } from './trace-context.ts';
import type { HeaderList } from './header-list.ts';
import type { Identity } from './identity.ts';
import { withoutSecretParts } from '../kernel/secret.ts';

/**
 * One request and its response, the same over HTTP/1.1 and HTTP/2. Handlers see nothing of the
 * protocol beneath: fields that HTTP/2 forbids, body-less statuses and the bytes of the head are
 * the business of the implementation.
 */
export interface Exchange {
  /** Unique per request; in the log and in `X-Request-Id` of error answers. */
  readonly id: string;
  readonly log: Logger;
  /** The connection's own scheme; forwarded headers never change it. */
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  readonly method: string;
  /** `Host` or `:authority` as sent; empty when the request had none. */
  readonly host: string;
  /** Path and query of the request in their canonical form (`canonical-target.ts`), still encoded. */
  readonly originalTarget: string;
  /** The same as the client spelled it, where upstreams are to get it so; null elsewhere. */
  readonly rawTarget: string | null;
  /** Path and query as rewritten so far, in their canonical form too. */
  target: string;
  /** Fields of the request. Handlers may change them; the HTTP/2 pseudo fields are not in it. */
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  /** The address of the client behind trusted proxies; else `remoteAddress`. */
  readonly clientAddress: string;
  /** Body of the request. Ends at once when there is none. Handlers may put a limiting one before it. */
  body: Readable;
  /**
   * Lends what is left of the body to a reader who may destroy it: what he has not been given by
   * then waits for the next one, or for who reads `body`. One reader at a time; null where the
   * message cannot have a body.
   */
  lendBody(loan: BodyLease): LeasedBody | null;
  /** False when the message cannot have a body (no length, no transfer coding, HTTP/2 END_STREAM). */
  readonly hasBody: boolean;
  /** Trailer fields of the request; complete once `body` has ended. */
  trailers(): HeaderList;
  /**
   * The client sends its body too slowly: it is answered without waiting for the rest, and what has
   * been answered already is broken off.
   */
  forgoBody(): void;
  /** Whether the client has left before the response was complete. */
  readonly abandoned: boolean;
  /**
   * Calls the listener once when the client leaves before the response is complete, soon if it has
   * left. The returned function takes the listener back.
   */
  onAbandoned(listener: () => void): () => void;
  /** Aborted when {@link onAbandoned} tells; it costs more. */
  readonly signal: AbortSignal;
  /** What handlers have established of whoever asks; the only thing that tokens are given by. */
  readonly identity: Identity;
  /** Values of `{…}` placeholders that handlers left for later ones. */
  readonly variables: Map<string, string>;

  /** What the client wants to switch to; null for an ordinary request. */
  readonly upgrade: UpgradeRequest | null;
  /**
   * Hands the connection of an HTTP/1.1 upgrade to the caller, who writes the head himself: it has
   * passed the head transforms, body wrappers apart. The exchange counts as begun.
   *
   * @throws HubgateError `no-connection` without such an upgrade, `response-begun` when a head has
   * been sent before
   */
  takeOver(head: ResponseHead): void;

  /** Bytes of the response's body that have been handed over, or that its head announced. */
  readonly responseBytes: number;
  /** `TLSv1.3`, say; null without TLS. */
  readonly tlsVersion: string | null;
  /** The upstream that answered, or was asked last; null before. Handlers set it for the log. */
  upstream: UpstreamVisit | null;
  /** Where it stands in a trace; null where none is kept. */
  trace: TraceContext | null;

  /** True once the head of the response is on its way. */
  readonly begun: boolean;
  /** Status sent; 0 before. */
  readonly status: number;
  /** Changes the head just before it is sent. The last registered runs first. */
  onHead(transform: HeadTransform): void;
  /** Keeps a field from the client, in informational responses, the head and the trailers alike. */
  withhold(name: string): void;
  /** Reads the trailer fields of the response, before those that are withheld are taken off. */
  onTrailers(read: (trailers: HeaderList) => void): void;
  /** Sends a 1xx response; 101 is not one of them. */
  inform(status: number, headers: HeaderList): void;
  /**
   * Sends the head and returns where the body goes; the head leaves at once, not with the first
   * byte of the body. For HEAD, 204 and 304 what is written is discarded.
   *
   * @throws HubgateError `response-begun` when the head has been sent before
   */
  begin(head: ResponseHead): Writable;
  /**
   * Sends the head of a response that is written piece by piece over a long time, and returns what
   * costs least to keep open: below it may be the connection itself. For HEAD, 204 and 304 what is
   * written is discarded. The request is not to be read any more.
   *
   * @throws HubgateError `response-begun` when the head has been sent before
   */
  stream(head: ResponseHead): ResponseStream;
  /** Trailer fields, to be called before the body ends. Dropped where the protocol cannot carry them. */
  end(body: Writable, trailers: HeaderList): void;
  /** Breaks the response off, so that the client cannot take it for complete. */
  abort(): void;
  /**
   * Told by whatever decides by more than method, URL and the fields that `Vary` names: by these
   * request fields, by who asks, or by a file. There only where an answer may be kept for others.
   */
  readonly dependsOn?: (on: Dependence) => void;
  /** The request of a client that it stands for as a whole; absent on that request itself. */
  readonly standsFor?: Exchange;
}

/** What an answer depends on that a cache does not see. */
export type Dependence = { readonly field: string } | 'client' | 'file';

/** On which terms a body is lent. */
export interface BodyLease {
  /** Called once, when the reader first asks for bytes. */
  readonly onWanted: () => void;
  /** How long the reader may take nothing while bytes wait for him; null: as long as he likes. */
  readonly stall: WaitLimit | null;
}

/** A body that its reader may destroy. */
export interface LeasedBody extends Readable {
  /** True once it has been given bytes, which nobody else can have any more. */
  readonly consumed: boolean;
}

/** How long somebody may let another wait. */
export interface WaitLimit {
  readonly limitMs: number;
  readonly clock: Clock;
  /** Makes what it ends with, once the wait was too long. */
  readonly over: () => Error;
}

/** How an upstream was asked for an answer. */
export interface UpstreamVisit {
  readonly hostport: string;
  /** Until the head of its answer, or until it failed. */
  readonly latencyMs: number;
}

/** Where a response goes that is written piece by piece over a long time. */
export interface ResponseStream {
  /** How the caller frames what it writes: HTTP/1.1 chunks (RFC 9112 §7.1), or nothing. */
  readonly framing: 'chunked' | 'plain';
  /**
   * Takes bytes framed so, none of them empty: an empty chunk is the last one. False: wait for
   * `drained`. The same Buffer may be handed to many streams; it must not change. After the end
   * nothing is taken.
   */
  write(framed: Buffer): boolean;
  /** Bytes accepted but not yet taken by the operating system. */
  readonly bufferedBytes: number;
  /** The one who is told; called once. */
  listen(listener: StreamListener): void;
  /** Ends cleanly after what was written; it writes the last chunk itself. */
  end(): void;
  /** Breaks off, so that the client cannot take the response for complete. */
  destroy(): void;
}

export interface StreamListener {
  /** Events that have been written, for the log. */
  readonly events: number;
  /** What `write` had refused to take more of is gone. */
  drained(): void;
  /** Nothing more is taken: exactly once, however it ended, never before `listen` has returned. */
  closed(): void;
}

/** An HTTP/1.1 `Upgrade`, or an HTTP/2 extended CONNECT (RFC 8441). */
export type UpgradeRequest =
  | {
      readonly kind: 'http1';
      readonly request: IncomingMessage;
      readonly socket: Duplex;
      /** What the client sent right after its head. */
      readonly head: Buffer;
      /** Takes the connection from the response that would be sent on it. */
      readonly release: () => void;
    }
  | { readonly kind: 'http2'; readonly protocol: string; readonly stream: ServerHttp2Stream };

export interface ResponseHead {
  status: number;
  readonly headers: HeaderList;
  /** `upstream` for the site's pages, of the proxied app or from files; `gateway` for all of our own. */
  readonly source: 'upstream' | 'gateway';
  /** The answer to an extended CONNECT whose tunnel is there. */
  readonly opensTunnel?: true;
  /** A 304 with all fields of its 200; those of the content are taken off when it is sent. */
  readonly isUnchanged?: boolean;
  /** Neither a body nor trailer fields follow: HTTP/2 says so with the head itself, which gRPC looks for. */
  readonly isWhole?: boolean;
}

/**
 * Changes a head; may return a function that wraps the body (for compression). One that needs an
 * answer from elsewhere returns a promise: the head and the body wait for it, and it must not
 * reject. A connection that is taken over waits for nobody.
 */
export type HeadTransform = (head: ResponseHead) => BodyWrapper | Promise<void> | undefined;

/** Takes where the encoded bytes go and returns where the plain bytes are written. */
export type BodyWrapper = (body: Writable) => Writable;

/** Answers the exchange, or passes it on. Throwing an {@link HttpError} answers with its status. */
export type Handler = (exchange: Exchange, next: Next) => void | Promise<void>;

/**
 * Runs the handlers after this one: done, or resolved, when one has answered or the last passed.
 * They are given the same exchange, or the one that stands for it from here on.
 */
export type Next = (exchange?: Exchange) => void | Promise<void>;

/**
 * Replaces the `{…}` placeholders of a text by what this exchange makes of them; those of the
 * response only where its fields are given. Each value goes through `encode`, if that is given;
 * the text around the placeholders does not.
 */
export type Expand = (
  template: string,
  exchange: Exchange,
  response?: HeaderList,
  encode?: (value: string) => string,
) => string;

/** Characters of a host or a path that a line of the log repeats. */
const MAX_SHOWN = 256;

/** Which request a line of the log is about, beside its own fields. The query stays out. */
export function about(
  { host, originalTarget, method, upstream }: Exchange,
  fields: LogFields,
): LogFields {
  const [path = ''] = originalTarget.split('?', 1);
  return {
    method,
    host: host.slice(0, MAX_SHOWN),
    path: withoutSecretParts(path.slice(0, MAX_SHOWN), 'REDACTED'),
    ...(upstream === null ? {} : { upstream: upstream.hostport }),
    ...fields,
  };
}
