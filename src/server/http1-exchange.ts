import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
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
import { dropNominated } from '../http/nominated-fields.ts';
import { countWrites } from '../http/response-size.ts';
import type { TraceContext } from '../http/trace-context.ts';
import { WritableStream } from '../http/writable-stream.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { discarding, isBodyless } from './bodyless.ts';
import { ClientBody } from './client-body.ts';
import { ConnectionStream } from './connection-stream.ts';
import { Departure } from './departure.ts';
import type { ExchangeConnection, ExchangeSettings } from './exchange-settings.ts';
import { HeadChanges } from './head-changes.ts';
import { HeldBody } from './held-body.ts';
import { informHttp1 } from './informational.ts';
import { carrierOf, releaseConnection } from './node-internals.ts';

/** Gives a connection to the last response on it; false where it stays with its server. */
export type LeaveConnection = (request: IncomingMessage, response: ServerResponse) => boolean;

/** The {@link Exchange} of a request that Node's HTTP/1.1 server has read. */
export class Http1Exchange implements Exchange {
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1';
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

  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #parentLog: Logger;
  readonly #leaveConnection: LeaveConnection | null;
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

  /** @param leaveConnection asked by a stream that wants the connection for itself; null: never */
  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    settings: ExchangeSettings,
    { secure, tlsVersion, peer, upgrade }: ExchangeConnection,
    leaveConnection: LeaveConnection | null,
  ) {
    this.#request = request;
    this.#response = response;
    this.#parentLog = settings.log;
    this.#leaveConnection = leaveConnection;
    this.upgrade = upgrade;
    this.tlsVersion = tlsVersion;
    this.scheme = secure ? 'https' : 'http';
    this.httpVersion = request.httpVersionMinor === 0 ? '1.0' : '1.1';
    this.method = request.method ?? 'GET';
    const { authority, target } = parseTarget(request.url ?? '/');
    this.originalTarget = target;
    this.target = target;
    this.remoteAddress = plainAddress(peer.address);
    this.remotePort = peer.port;
    const headers = HeaderList.fromRaw(request.rawHeaders);
    this.headers = headers;
    this.host = authority ?? headers.get('host') ?? '';
    // RFC 9112 §3.2.2: the authority wins over a differing Host.
    if (authority !== null && authority !== '') headers.set('host', authority);
    this.hasBody =
      headers.has('transfer-encoding') || Number(headers.get('content-length') ?? 0) > 0;
    dropNominated(headers);
    this.clientAddress =
      settings.clientAddress?.(headers, this.remoteAddress) ?? this.remoteAddress;
    // A write to a client that has left is told by its departure; unheard it would end the process.
    response.on('error', ignore);
    this.#awaitsContinue = this.hasBody && expectsContinue(this);
    this.body =
      settings.silence !== null && this.hasBody && upgrade === null
        ? new ClientBody(request, settings.silence, () => this.forgoBody())
        : request;
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
    return HeaderList.fromRaw(this.#request.rawTrailers);
  }

  get abandoned(): boolean {
    const { destroyed, writableFinished } = this.#response;
    return !writableFinished && (destroyed || this.#request.socket.destroyed);
  }

  /** RFC 9110 §15.5.9: whoever reads the body answers 408, if there is still somebody to answer. */
  forgoBody(): void {
    if (!this.begun) this.#isSilent = true;
    // Once answered, the response no longer holds the connection that waits for the rest.
    else this.#request.socket.destroy();
  }

  onAbandoned(listener: () => void): () => void {
    return this.#awaitDeparture().tell(listener);
  }

  get signal(): AbortSignal {
    return this.#awaitDeparture().signal;
  }

  takeOver(head: ResponseHead): void {
    this.#refuseSecondHead();
    void this.#changes.apply(head, []);
    this.#changes.drop(head.headers);
    this.#status = head.status;
    this.#response.detachSocket(this.#request.socket);
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
    if (this.httpVersion === '1.1') informHttp1(this.#response, status, headers);
  }

  begin(head: ResponseHead): Writable {
    this.#refuseSecondHead();
    const wrappers: BodyWrapper[] = [];
    const waiting = this.#changes.apply(head, wrappers);
    if (waiting === undefined) return this.#send(head, wrappers);
    this.#status = head.status;
    this.#held = new HeldBody({
      begin: () => waiting.then(() => this.#send(head, wrappers)),
      end: (body, trailers) => this.#end(body, trailers),
      fail: (error) => {
        this.log.error('A head that had waited could not be sent', { error: messageOf(error) });
        this.abort();
      },
    });
    return this.#held.body;
  }

  stream(head: ResponseHead): ResponseStream {
    this.#isStream = true;
    const response = this.#response;
    // An event stream ends when the client or the gateway goes: who comes again connects again.
    if (this.#leaveConnection !== null) response.shouldKeepAlive = false;
    const body = this.begin(head);
    const { socket } = response;
    // One whose turn has not come yet has no socket: earlier answers of the connection go first.
    if (body !== response || !response.chunkedEncoding || socket === null) {
      return new WritableStream(body, this);
    }
    if (this.#leaveConnection?.(this.#request, response) !== true) {
      return new WritableStream(body, this);
    }
    const departure = this.#departure;
    return new ConnectionStream(socket, departure === undefined ? null : () => departure.happen());
  }

  end(body: Writable, trailers: HeaderList): void {
    if (this.#held?.body === body) this.#held.end(trailers);
    else this.#end(body, trailers);
  }

  abort(): void {
    this.#departure?.happen();
    // A body that only the end of the connection delimits looks complete after an orderly end.
    if (this.httpVersion === '1.0') {
      const carrier = carrierOf(this.#request.socket);
      // A Unix socket, which has no address, knows no reset, and Node throws.
      if (carrier.remoteAddress !== undefined) carrier.resetAndDestroy();
    }
    this.#response.destroy();
  }

  #awaitDeparture(): Departure {
    if (this.#departure !== undefined) return this.#departure;
    const departure = new Departure();
    this.#departure = departure;
    if (this.abandoned) departure.happen();
    this.#response.once('close', () => {
      if (!this.#response.writableFinished) departure.happen();
    });
    return departure;
  }

  #refuseSecondHead(): void {
    if (!this.begun) return;
    throw new HubgateError('response-begun', 'The head of this response has already been sent');
  }

  #send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable {
    const response = this.#response;
    const { headers } = head;
    this.#changes.drop(headers);
    const bodyless = isBodyless(this.method, head);
    // Node throws for a Trailer field where it sends no chunks.
    if (bodyless || this.httpVersion === '1.0' || headers.has('content-length')) {
      headers.delete('trailer');
    }
    // RFC 9110 §10.1.1: whether the body still follows cannot be known, so neither where it ends.
    if (this.#awaitsContinue || this.#isSilent) response.shouldKeepAlive = false;
    response.writeHead(head.status, headers.toRaw());
    // Not flushHeaders(): Node would write the head as UTF-8 and so mangle bytes beyond ASCII.
    response.write('', 'latin1');
    this.#status = head.status;
    if (bodyless) return discarding(response);
    this.#measure(head.headers, response);
    return wrappers.reduce<Writable>((body, wrap) => wrap(body), response);
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
    if (this.#response.chunkedEncoding && !trailers.isEmpty) {
      this.#response.addTrailers(
        [...trailers].map(([name, value]): [string, string] => [name, value]),
      );
    }
    body.end();
  }
}

/** Leaves as soon as the parser has come to its end; until then the server still has its listeners. */
export function leaveServer(request: IncomingMessage, response: ServerResponse): boolean {
  const { socket } = response;
  if (socket === null) return false;
  setImmediate(() => {
    if (!releaseConnection(request, response)) return;
    // What the client still says is for nobody: it is dropped, and its end noticed.
    socket.resume();
  });
  return true;
}

/** RFC 9112 §3.2.2: an absolute-form target names authority and path. */
function parseTarget(target: string): { authority: string | null; target: string } {
  if (target.startsWith('/')) return { authority: null, target };
  const absolute = /^[A-Za-z][A-Za-z0-9+.-]*:\/\/([^/?#]*)(.*)$/.exec(target);
  if (absolute === null) return { authority: null, target };
  const [, authority = '', path = ''] = absolute;
  const host = authority.slice(authority.lastIndexOf('@') + 1);
  return { authority: host, target: path.startsWith('/') ? path : `/${path}` };
}

function ignore(): void {}
