import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { HttpError } from '../http/errors.ts';
import type {
  BodyLease,
  BodyWrapper,
  Exchange,
  LeasedBody,
  ResponseHead,
  ResponseStream,
  UpgradeRequest,
  UpstreamVisit,
  WaitLimit,
} from '../http/exchange.ts';
import { goneBody } from '../http/body-end.ts';
import { DisconnectSignal } from '../http/disconnect-signal.ts';
import { discarding } from '../http/deferred-body.ts';
import {
  ExchangeResponse,
  isBodyless,
  WritableStream,
  wrapped,
} from '../http/exchange-response.ts';
import { dropNominated, expectsContinue } from '../http/field-values.ts';
import { isFieldValue, isToken } from '../http/http1-syntax.ts';
import { plainAddress } from '../http/forwarded.ts';
import { HeaderList } from '../http/header-list.ts';
import { withPreset } from '../http/header-operations.ts';
import { Identity } from '../http/identity.ts';
import { dropFieldsOfContent } from '../http/representation.ts';
import { countWrites } from '../http/body-memory.ts';
import type { TraceContext } from '../http/trace-context.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { type BodyReads, ClientBody } from '../http/client-body.ts';
import type { ExchangeConnection, ExchangeSettings } from './connection-policy.ts';
import { carrierOf } from '../kernel/node-internals.ts';
import { RecentObjects } from '../kernel/v8-memory.ts';
import { Http1Response } from './http1-response.ts';
import type { RequestTarget } from './strict-request.ts';

const recent = new RecentObjects();

/**
 * Content of up to this length is not counted over HTTP/2, where that takes two functions. If it is cut off, it counts as sent
 * nevertheless.
 */
const MAX_UNCOUNTED_BYTES = 16 * 1024;

/** The {@link Exchange} of a request that a server has read, over either protocol. */
export class ServerExchange extends ExchangeResponse implements Exchange {
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  method: string;
  readonly originalMethod: string;
  readonly originalHost: string;
  host: string;
  readonly originalTarget: string;
  readonly rawTarget: string | null;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly clientAddress: string;
  readonly hasBody: boolean;
  readonly identity: Identity = new Identity();
  readonly upgrade: UpgradeRequest | null;
  readonly tlsVersion: string | null;
  upstream: UpstreamVisit | null = null;
  trace: TraceContext | null = null;

  readonly #adapter: ProtocolAdapter;
  readonly #settings: ExchangeSettings;
  #preset: HeaderList | null = null;
  #id: string | undefined;
  #log: Logger | undefined;
  /** Few requests have any. */
  #variables: Map<string, string> | null = null;
  /** The body for readers, once one has been requested or set, instead of the protocol's own. */
  #body: Readable | null = null;
  /** Of all readers to which the body was lent; null if there is none. */
  #reads: BodyReads | null = null;
  #disconnect: DisconnectSignal | undefined;
  /** The client holds its body back until it gets 100 Continue. */
  #awaitsContinue: boolean;
  #isStream = false;
  /** The content of the response as the client gets it; null for a stream, and if there is none. */
  #content: Writable | null = null;
  /** Of a content that does not count its bytes itself. */
  #contentBytes = 0;
  /** The rest of the body is not awaited. */
  #isSilent = false;

  constructor(
    adapter: ProtocolAdapter,
    settings: ExchangeSettings,
    { secure, tlsVersion, peer, upgrade }: ExchangeConnection,
  ) {
    super();
    recent.keep(this);
    this.#adapter = adapter;
    this.#settings = settings;
    this.upgrade = upgrade;
    this.tlsVersion = tlsVersion;
    this.scheme = secure ? 'https' : 'http';
    this.httpVersion = adapter.httpVersion;
    this.method = adapter.method;
    this.originalMethod = adapter.method;
    this.originalHost = adapter.host;
    this.host = adapter.host;
    this.originalTarget = adapter.target;
    this.rawTarget = settings.keeps.forwardRawPath ? adapter.spelledTarget : null;
    this.target = adapter.target;
    this.headers = this.#kept(adapter.headers);
    this.hasBody = adapter.hasBody;
    this.remoteAddress = plainAddress(peer.address);
    this.remotePort = peer.port;
    this.clientAddress =
      settings.clientAddress?.(adapter.headers, this.remoteAddress) ?? this.remoteAddress;
    dropNominated(this.headers);
    this.#awaitsContinue = this.hasBody && expectsContinue(this);
  }

  get variables(): Map<string, string> {
    this.#variables ??= new Map();
    return this.#variables;
  }

  get id(): string {
    this.#id ??= randomUUID();
    return this.#id;
  }

  get log(): Logger {
    this.#log ??= this.#settings.log.child({ request: this.id });
    return this.#log;
  }

  get body(): Readable {
    if (this.#body !== null) return this.#body;
    const { body } = this.#adapter;
    const silence = this.#silence();
    // There is nothing to wait for if the body has ended or will not arrive.
    const isPlain = silence === null || body.readableEnded || this.#isSilent;
    this.#body = isPlain ? body : new ClientBody(body, this.#adapter.isBodyView, silence, null);
    return this.#body;
  }

  set body(body: Readable) {
    this.#body = body;
  }

  lendBody(loan: BodyLease): LeasedBody | null {
    if (!this.hasBody) return null;
    this.#reads ??= { haveBegun: false, open: 0 };
    const reads = this.#reads;
    // A body that was requested earlier already has the limit for silence.
    return this.#body === null
      ? new ClientBody(this.#adapter.body, this.#adapter.isBodyView, this.#silence(), loan, reads)
      : new ClientBody(this.#body, false, null, loan, reads);
  }

  get isBodyWhole(): boolean {
    if (!this.hasBody || this.#isSilent || this.abandoned) return false;
    if (this.#reads?.haveBegun === true) return false;
    // A body that flows is read or discarded, although nothing may have arrived yet.
    return this.#body?.readableDidRead !== true && this.#body?.readableFlowing !== true;
  }

  get isBodyLent(): boolean {
    return this.#reads !== null && this.#reads.open > 0;
  }

  trailers(): HeaderList {
    return this.#kept(this.#adapter.trailers());
  }

  get abandoned(): boolean {
    return this.#adapter.abandoned;
  }

  /** RFC 9110 §15.5.9: the reader of the body responds with 408 if the response has not begun. */
  discardBody(): void {
    if (this.begun) this.#adapter.discardRequest();
    else this.#isSilent = true;
  }

  onAbandoned(listener: () => void): () => void {
    return this.#disconnected().add(listener);
  }

  get signal(): AbortSignal {
    return this.#disconnected().signal;
  }

  takeOver(head: ResponseHead): void {
    if (this.upgrade?.kind !== 'http1') {
      throw new HubgateError('no-connection', 'Only an upgrade of HTTP/1.1 has a connection');
    }
    this.beginTakeOver(head);
    this.upgrade.release();
  }

  get preset(): HeaderList {
    this.#preset ??= new HeaderList();
    return this.#preset;
  }

  inform(status: number, headers: HeaderList): void {
    if (this.begun || status === 101) return;
    this.dropWithheld(headers);
    // RFC 9110 §8.6: no informational response has a length.
    headers.delete('content-length');
    if (status === 100) this.#awaitsContinue = false;
    this.#adapter.inform(status, headers);
  }

  override stream(head: ResponseHead): ResponseStream {
    this.#isStream = true;
    const body = this.begin(head);
    if (this.taken === null) {
      return this.#adapter.stream(body, this.#disconnect) ?? new WritableStream(body, this);
    }
    this.#isStream = false;
    return new WritableStream(body, this);
  }

  protected breakOff(): void {
    this.#disconnect?.trigger();
    this.#adapter.breakOff();
  }

  protected prepare(head: ResponseHead): void {
    // RFC 9113 §8.5: any 2xx tells the client that its tunnel is open, and everything after it belongs to the
    // tunnel.
    if (this.upgrade?.kind === 'http2' && head.opensTunnel !== true && isSuccess(head.status)) {
      head.status = 501;
    }
    this.#adapter.prepare(head, this.#isStream);
  }

  protected addPreset(head: ResponseHead): void {
    if (this.#preset !== null) withPreset(head, this.#preset);
  }

  protected send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable {
    if (head.isUnchanged === true) dropFieldsOfContent(head.headers);
    // A body wrapper may add data to an empty body.
    const isWhole = head.isWhole === true && wrappers.length === 0 && this.httpVersion === '2.0';
    const bodyless = isBodyless(this.originalMethod, head) || isWhole;
    const isRead = !this.#awaitsContinue && !this.#isSilent;
    const isGone = this.abandoned;
    const body = isGone ? goneBody() : this.#adapter.send(head, bodyless, isRead);
    if (bodyless) return discarding(body);
    if (!isGone) this.#measure(head, body);
    return wrapped(body, wrappers);
  }

  protected finish(body: Writable, trailers: HeaderList): void {
    if (!trailers.isEmpty) this.#adapter.sendTrailers(trailers);
    body.end();
  }

  /**
   * By default, without names that contain `_`. For programs that turn fields into variables (RFC 3875
   * §4.1.18), `X_User` is the same as `X-User`, which the gateway may set or remove.
   */
  #kept(fields: HeaderList): HeaderList {
    if (!this.#settings.keeps.underscoresInHeaders) fields.deleteWhere(hasUnderscore);
    return fields;
  }

  #silence(): WaitLimit | null {
    const { silence } = this.#settings;
    if (silence === null || !this.hasBody || this.upgrade !== null) return null;
    const { limitMs, clock } = silence;
    const over = (): Error => {
      this.discardBody();
      return new HttpError(408, `the client sent nothing for ${limitMs} ms`);
    };
    return { limitMs, clock, over };
  }

  #disconnected(): DisconnectSignal {
    if (this.#disconnect !== undefined) return this.#disconnect;
    const disconnect = new DisconnectSignal();
    this.#disconnect = disconnect;
    if (this.abandoned) disconnect.trigger();
    this.#adapter.reportDisconnect(disconnect);
    return disconnect;
  }

  get responseBytes(): number {
    return this.#content instanceof Http1Response ? this.#content.contentBytes : this.#contentBytes;
  }

  awaitsSent(listener: () => void): boolean {
    const content = this.#content;
    if (content === null || content.writableEnded || content.destroyed) return false;
    const sent = (): void => {
      content.off('finish', sent).off('close', sent);
      try {
        listener();
      } catch (error) {
        // Nobody else would catch it.
        this.log.error('The end of a response could not be noted', { error: messageOf(error) });
      }
    };
    content.on('finish', sent).on('close', sent);
    return true;
  }

  awaitTurn(): Promise<void> | null {
    return this.#adapter.awaitTurn?.() ?? null;
  }

  /** The code that writes a stream counts its bytes. */
  #measure({ headers, opensTunnel }: ResponseHead, body: Writable): void {
    if (this.#isStream) return;
    if (opensTunnel !== true) this.#content = body;
    if (body instanceof Http1Response) return;
    const length = Number(headers.get('content-length'));
    if (length <= MAX_UNCOUNTED_BYTES) {
      this.#contentBytes = length;
      return;
    }
    countWrites(body, (bytes) => {
      this.#contentBytes += bytes;
    });
  }
}

function hasUnderscore(key: string): boolean {
  return key.includes('_');
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** What an adapter knows of its request, whatever the protocol is. */
export abstract class RequestFacts<Version extends Exchange['httpVersion']> {
  readonly httpVersion: Version;
  readonly method: string;
  /** The effective authority; empty if the request had none. */
  readonly host: string;
  /** Path and query in their canonical form. */
  readonly target: string;
  /** Path and query as the client spelled them. */
  readonly spelledTarget: string;
  readonly headers: HeaderList;

  /** @param authority that of the request target; it takes precedence over a different Host (RFC 9112 §3.2.2) */
  constructor(
    httpVersion: Version,
    method: string,
    headers: HeaderList,
    { target, spelled }: RequestTarget,
    authority: string | null | undefined,
  ) {
    this.httpVersion = httpVersion;
    this.method = method;
    this.target = target;
    this.spelledTarget = spelled;
    this.headers = headers;
    this.host = authority ?? headers.get('host') ?? '';
    if (authority) headers.set('host', authority);
  }
}

/** Bytes that may wait for a client of HTTP/1.1. Beyond them, it gets no more informational responses. */
export const MAX_WAITING_FOR_INFORMATIONAL = 64 * 1024;

/**
 * The fields that HTTP/1.1 can carry, of an informational response or a trailer section: those may be dropped one by
 * one. A line break in a field would begin another response.
 */
export function validFields(headers: HeaderList): HeaderList {
  const valid = headers.clone();
  valid.deleteWhere((key, value) => !isToken(key) || !isFieldValue(value));
  return valid;
}

/**
 * Resets the connection of an incomplete response over HTTP/1.0: its body is delimited only by the end of the
 * connection, and would look complete after an orderly close.
 */
export function resetIfUndelimited({ httpVersion }: ProtocolAdapter, socket: Socket): void {
  if (httpVersion !== '1.0') return;
  const carrier = carrierOf(socket);
  // A Unix socket, which has no address, cannot be reset: Node throws.
  if (carrier.remoteAddress !== undefined) carrier.resetAndDestroy();
}

/** One request and the means to send its response: everything that differs between the protocols. */
export interface ProtocolAdapter extends RequestFacts<Exchange['httpVersion']> {
  readonly hasBody: boolean;
  /** The source of the body. */
  readonly body: Readable;
  /** Its pieces are views of what an HTTP/2 session has read, and nobody else reads it. */
  readonly isBodyView: boolean;
  /** Trailer fields of the request; complete once its body has ended. */
  trailers(): HeaderList;
  /** Whether the client has left before the response was complete. */
  readonly abandoned: boolean;
  /** Sets the signal that is triggered when that happens. */
  reportDisconnect(disconnect: DisconnectSignal): void;
  /** See {@link Exchange.awaitTurn}; missing where requests of a connection are independent. */
  awaitTurn?(): Promise<void> | null;
  /** Sends a 1xx response, if the protocol has them. */
  inform(status: number, headers: HeaderList): void;
  /** Called with the head of the handler before the head is sent. */
  prepare(head: ResponseHead, isStream: boolean): void;
  /**
   * Sends the head and returns the stream for the body. Without `isRead`, the rest of the request is not
   * awaited.
   */
  send(head: ResponseHead, isBodyless: boolean, isRead: boolean): Writable;
  /** The cheapest way to write a stream after its head; null if that is `body` itself. */
  stream(body: Writable, disconnect: DisconnectSignal | undefined): ResponseStream | null;
  /** Called before the body ends. The fields are dropped if the protocol cannot carry them. */
  sendTrailers(trailers: HeaderList): void;
  /** Aborts the response, so that the client does not regard it as complete. */
  breakOff(): void;
  /** The response has begun, and the rest of the request will not arrive. */
  discardRequest(): void;
}
