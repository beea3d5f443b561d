import { asciiTarget } from './strict-request.ts';
import { randomUUID } from 'node:crypto';
import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import type { Readable, Writable } from 'node:stream';
import type {
  BodyWrapper,
  Exchange,
  HeadTransform,
  ResponseHead,
  ResponseStream,
  UpgradeRequest,
  UpstreamVisit,
} from '../http/exchange.ts';
import { expectsContinue } from '../http/expect.ts';
import { plainAddress } from '../http/forwarded.ts';
import { HeaderList } from '../http/header-list.ts';
import { countWrites } from '../http/response-size.ts';
import type { TraceContext } from '../http/trace-context.ts';
import { WritableStream } from '../http/writable-stream.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { discarding, isBodyless } from './bodyless.ts';
import { ClientBody } from './client-body.ts';
import { Departure } from './departure.ts';
import type { ExchangeConnection, ExchangeSettings } from './exchange-settings.ts';
import { HeadChanges } from './head-changes.ts';
import { HeldBody } from './held-body.ts';
import { http2Fields, readHttp2Head } from '../http/http2-fields.ts';
import { breakOff, closeAnswered, Http2Stream } from './http2-stream.ts';

/** A request as an HTTP/2 server reads it. */
export interface Http2Request {
  readonly stream: ServerHttp2Stream;
  /** Alternating names and values as they came, pseudo-header fields included. */
  readonly rawHeaders: readonly string[];
  /** Where the body is read from: the stream, or what somebody has put before it. */
  readonly body: Readable;
}

/** The {@link Exchange} of a request that Node's HTTP/2 server has read. */
export class Http2Exchange implements Exchange {
  readonly scheme: 'http' | 'https';
  readonly httpVersion = '2.0';
  readonly method: string;
  readonly host: string;
  readonly originalTarget: string;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly clientAddress: string;
  body: Readable;
  readonly hasBody: boolean;
  readonly variables: Map<string, string> = new Map();
  readonly upgrade: UpgradeRequest | null;
  readonly tlsVersion: string | null;
  upstream: UpstreamVisit | null = null;
  trace: TraceContext | null = null;
  responseBytes = 0;

  readonly #stream: ServerHttp2Stream;
  readonly #parentLog: Logger;
  readonly #changes = new HeadChanges();
  #id: string | undefined;
  #log: Logger | undefined;
  #held: HeldBody | null = null;
  #departure: Departure | undefined;
  /** The client holds its body back until it is told to go on. */
  #awaitsContinue: boolean;
  #status = 0;
  #isStream = false;
  /** The rest of the body is not waited for. */
  #isSilent = false;
  #trailers: readonly string[] = [];
  /** What follows the body; null where its end is the end of the stream. */
  #ending: HeaderList | null = null;

  constructor(
    { stream, rawHeaders, body }: Http2Request,
    settings: ExchangeSettings,
    { secure, tlsVersion, peer, upgrade }: ExchangeConnection,
  ) {
    this.#stream = stream;
    this.#parentLog = settings.log;
    this.upgrade = upgrade;
    this.tlsVersion = tlsVersion;
    this.scheme = secure ? 'https' : 'http';
    const { method, authority, path: sent, headers } = readHttp2Head(rawHeaders);
    const path = asciiTarget(sent);
    this.method = method;
    this.originalTarget = path;
    this.target = path;
    this.headers = headers;
    // RFC 9113 §8.3.1: the authority wins over a differing Host.
    this.host = authority ?? headers.get('host') ?? '';
    if (this.host !== '') headers.set('host', this.host);
    this.remoteAddress = plainAddress(peer.address);
    this.remotePort = peer.port;
    this.clientAddress =
      settings.clientAddress?.(headers, this.remoteAddress) ?? this.remoteAddress;
    this.hasBody = !stream.endAfterHeaders;
    this.#awaitsContinue = this.hasBody && expectsContinue(this);
    if (this.hasBody) {
      stream.once('trailers', (_record: unknown, _flags: unknown, raw: readonly string[]) => {
        this.#trailers = raw;
      });
    }
    this.body =
      settings.silence !== null && this.hasBody && upgrade === null
        ? new ClientBody(body, settings.silence, () => this.forgoBody())
        : body;
  }

  get id(): string {
    this.#id ??= randomUUID();
    return this.#id;
  }

  get log(): Logger {
    this.#log ??= this.#parentLog.child({ request: this.id });
    return this.#log;
  }

  trailers(): HeaderList {
    return HeaderList.fromRaw(this.#trailers);
  }

  get abandoned(): boolean {
    const { aborted, closed, destroyed, rstCode, writableFinished } = this.#stream;
    if (!closed && !destroyed) return false;
    // A stream that the client reset reports its writable side as finished nevertheless.
    return aborted || rstCode !== constants.NGHTTP2_NO_ERROR || !writableFinished;
  }

  /** RFC 9110 §15.5.9: whoever reads the body answers 408, if there is still somebody to answer. */
  forgoBody(): void {
    if (this.begun) this.abort();
    else this.#isSilent = true;
  }

  onAbandoned(listener: () => void): () => void {
    return this.#awaitDeparture().tell(listener);
  }

  get signal(): AbortSignal {
    return this.#awaitDeparture().signal;
  }

  takeOver(): void {
    throw new HubgateError('no-connection', 'An HTTP/2 request has no connection to take over');
  }

  get begun(): boolean {
    return this.#status !== 0;
  }

  get status(): number {
    return this.#status;
  }

  onHead(transform: HeadTransform): void {
    this.#changes.add(transform);
  }

  withhold(name: string): void {
    this.#changes.withhold(name);
  }

  onTrailers(read: (trailers: HeaderList) => void): void {
    this.#changes.addTrailerReader(read);
  }

  inform(status: number, headers: HeaderList): void {
    if (this.begun || status === 101) return;
    this.#changes.drop(headers);
    // RFC 9110 §8.6: no informational response has a length.
    headers.delete('content-length');
    if (status === 100) this.#awaitsContinue = false;
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return;
    stream.additionalHeaders(responseFields(status, headers));
  }

  begin(head: ResponseHead): Writable {
    return this.#begin(head, mayHaveTrailers(head));
  }

  stream(head: ResponseHead): ResponseStream {
    this.#isStream = true;
    const body = this.#begin(head, false);
    const stream = this.#stream;
    return body === stream ? new Http2Stream(stream) : new WritableStream(body, this);
  }

  end(body: Writable, trailers: HeaderList): void {
    if (this.#held?.body === body) this.#held.end(trailers);
    else this.#end(body, trailers);
  }

  abort(): void {
    this.#departure?.happen();
    breakOff(this.#stream);
  }

  #awaitDeparture(): Departure {
    if (this.#departure !== undefined) return this.#departure;
    const departure = new Departure();
    this.#departure = departure;
    if (this.abandoned) departure.happen();
    this.#stream.once('close', () => {
      if (this.abandoned) departure.happen();
    });
    this.#stream.once('aborted', () => departure.happen());
    return departure;
  }

  #begin(head: ResponseHead, withTrailers: boolean): Writable {
    if (this.begun) {
      throw new HubgateError('response-begun', 'The head of this response has already been sent');
    }
    const wrappers: BodyWrapper[] = [];
    const waiting = this.#changes.apply(head, wrappers);
    if (waiting === undefined) return this.#send(head, wrappers, withTrailers);
    this.#status = head.status;
    this.#held = new HeldBody({
      begin: () => waiting.then(() => this.#send(head, wrappers, withTrailers)),
      end: (body, trailers) => this.#end(body, trailers),
      fail: (error) => {
        this.log.error('A head that had waited could not be sent', { error: messageOf(error) });
        this.abort();
      },
    });
    return this.#held.body;
  }

  #send(head: ResponseHead, wrappers: readonly BodyWrapper[], withTrailers: boolean): Writable {
    const stream = this.#stream;
    this.#changes.drop(head.headers);
    const bodyless = isBodyless(this.method, head);
    if (!stream.destroyed && !stream.closed) this.#respond(head, bodyless, withTrailers);
    this.#status = head.status;
    if (bodyless) return discarding(stream);
    this.#measure(head.headers, stream);
    return wrappers.reduce<Writable>((body, wrap) => wrap(body), stream);
  }

  #respond(head: ResponseHead, bodyless: boolean, withTrailers: boolean): void {
    const stream = this.#stream;
    // RFC 9110 §15: a client treats a status beyond 599 as 500; HTTP/2 here cannot carry it.
    const fields = responseFields(head.status > 599 ? 500 : head.status, head.headers);
    if (bodyless) stream.respond(fields, { endStream: true });
    else if (withTrailers) {
      stream.respond(fields, { waitForTrailers: true });
      // Where it is mounted Node's own response would send some as well, which ends the process.
      stream.removeAllListeners('wantTrailers').once('wantTrailers', () => {
        stream.sendTrailers(this.#ending === null ? {} : http2Fields(this.#ending));
      });
    } else stream.respond(fields);
    if (this.#isSilent || this.#awaitsContinue) stream.once('finish', () => closeAnswered(stream));
  }

  /** What a stream comes to is counted by those who write it. */
  #measure(headers: HeaderList, body: Writable): void {
    if (this.#isStream) return;
    const length = headers.get('content-length');
    if (length !== undefined) this.responseBytes = Number(length) || 0;
    else {
      countWrites(body, (bytes) => {
        this.responseBytes += bytes;
      });
    }
  }

  #end(body: Writable, trailers: HeaderList): void {
    this.#changes.applyTrailers(trailers);
    if (!trailers.isEmpty) this.#ending = trailers;
    body.end();
  }
}

/** Nobody knows before its end, unless its length is known (RFC 9112 §7.1.2). */
function mayHaveTrailers({ headers }: ResponseHead): boolean {
  return !headers.has('content-length');
}

function responseFields(status: number, headers: HeaderList): OutgoingHttpHeaders {
  const fields: OutgoingHttpHeaders = http2Fields(headers);
  fields[':status'] = status;
  return fields;
}
