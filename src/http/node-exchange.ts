import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import {
  constants,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Stream,
} from 'node:http2';
import { Socket } from 'node:net';
import { type Readable, Writable } from 'node:stream';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type {
  BodyWrapper,
  Exchange,
  HeadTransform,
  ResponseHead,
  ResponseStream,
  UpgradeRequest,
} from './exchange.ts';
import { ChunkedStream } from './chunked-stream.ts';
import { ClientBody, type SilenceLimit } from './client-body.ts';
import { expectsContinue } from './expect.ts';
import { plainAddress } from './forwarded.ts';
import { HeaderList } from './header-list.ts';
import { HeldBody } from './held-body.ts';
import { informHttp1 } from './informational.ts';
import { WritableStream } from './writable-stream.ts';

/** The address of a connection's other end, or the one that a PROXY protocol header names for it. */
export interface Peer {
  /** Empty for a Unix socket. */
  readonly address: string;
  readonly port: number;
}

/** What the listener knows of a request beside the request itself. */
export interface ExchangeOrigin {
  readonly id: string;
  readonly log: Logger;
  /** The address to use for the client; null takes the connection's. */
  readonly clientAddress: string | null;
  /** Who is at the other end; null takes what the connection says. */
  readonly peer: Peer | null;
  /** How long the client may be silent in the middle of a body; null for as long as it likes. */
  readonly silence: SilenceLimit | null;
  readonly upgrade: UpgradeRequest | null;
}

export type NodeRequest = IncomingMessage | Http2ServerRequest;
export type NodeResponse = ServerResponse | Http2ServerResponse;

/** RFC 9113 §8.2.2: connection-specific fields make an HTTP/2 message malformed. */
const FORBIDDEN_ON_HTTP2 = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
]);

/** Statuses whose responses have no content (RFC 9110 §15). */
const BODYLESS = new Set([204, 205, 304]);

const NOTHING = Buffer.alloc(0);

/** The {@link Exchange} of a request that Node's HTTP/1.1 or HTTP/2 server has read. */
export class NodeExchange implements Exchange {
  readonly id: string;
  readonly log: Logger;
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
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

  readonly #request: NodeRequest;
  readonly #response: NodeResponse;
  readonly #transforms: HeadTransform[] = [];
  readonly #withheld: string[] = [];
  #held: HeldBody | null = null;
  #abort: AbortController | undefined;
  /** The client holds its body back until it is told to go on. */
  #awaitsContinue: boolean;
  #status = 0;
  /** The rest of the body is not waited for. */
  #isSilent = false;

  constructor(request: NodeRequest, response: NodeResponse, origin: ExchangeOrigin) {
    this.#request = request;
    this.#response = response;
    this.id = origin.id;
    this.log = origin.log;
    this.upgrade = origin.upgrade;
    const socket = request.socket;
    this.scheme = 'encrypted' in socket && socket.encrypted ? 'https' : 'http';
    this.httpVersion = versionOf(request);
    this.method = request.method ?? 'GET';
    const { authority, target } = parseTarget(request.url ?? '/');
    this.originalTarget = target;
    this.target = target;
    this.body = request;
    this.remoteAddress = plainAddress(origin.peer?.address ?? socket.remoteAddress ?? '');
    this.remotePort = origin.peer?.port ?? socket.remotePort ?? 0;
    this.clientAddress = origin.clientAddress ?? this.remoteAddress;
    if (isHttp2(response)) {
      this.headers = http2Fields(request.rawHeaders);
      this.host = String(request.headers[':authority'] ?? this.headers.get('host') ?? '');
      this.hasBody = !response.stream.endAfterHeaders;
    } else {
      this.headers = HeaderList.fromRaw(request.rawHeaders);
      this.host = authority ?? request.headers.host ?? '';
      this.hasBody =
        request.headers['transfer-encoding'] !== undefined ||
        Number(request.headers['content-length'] ?? 0) > 0;
      // A write to a client that has left is told by `signal`; unheard it would end the process.
      response.on('error', () => {});
    }
    // RFC 9113 §8.3.1, RFC 9112 §3.2.2: the authority wins over a differing Host.
    if (this.host !== '') this.headers.set('host', this.host);
    this.#awaitsContinue = this.hasBody && expectsContinue(this);
    if (origin.silence !== null && this.hasBody && origin.upgrade === null) {
      this.body = new ClientBody(request, origin.silence, () => this.#fallSilent());
    }
  }

  trailers(): HeaderList {
    return HeaderList.fromRaw(this.#request.rawTrailers);
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      const abort = new AbortController();
      this.#abort = abort;
      if (isHttp2(this.#response)) abortWithStream(this.#response.stream, abort);
      else abortWithResponse(this.#response, abort);
    }
    return this.#abort.signal;
  }

  takeOver(head: ResponseHead): void {
    this.#refuseSecondHead();
    void this.#transform(head, []);
    this.#dropWithheld(head.headers);
    this.#status = head.status;
    if (!isHttp2(this.#response)) this.#response.detachSocket(this.#request.socket);
  }

  get begun(): boolean {
    return this.#status !== 0;
  }

  get status(): number {
    return this.#status;
  }

  onHead(transform: HeadTransform): void {
    this.#transforms.push(transform);
  }

  withhold(name: string): void {
    this.#withheld.push(name);
  }

  inform(status: number, headers: HeaderList): void {
    if (this.begun || status === 101) return;
    this.#dropWithheld(headers);
    // RFC 9110 §8.6: no informational response has a length.
    headers.delete('content-length');
    if (status === 100) this.#awaitsContinue = false;
    if (isHttp2(this.#response)) {
      const { stream } = this.#response;
      if (!stream.destroyed && !stream.closed) {
        stream.additionalHeaders(http2Head(status, headers));
      }
    } else if (this.httpVersion === '1.1') {
      informHttp1(this.#response, status, headers);
    }
  }

  begin(head: ResponseHead): Writable {
    this.#refuseSecondHead();
    const wrappers: BodyWrapper[] = [];
    const waiting = this.#transform(head, wrappers);
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
    const body = this.begin(head);
    const response = this.#response;
    // Not one whose turn has not come yet: earlier answers of the connection go before it.
    if (body === response && !isHttp2(response) && response.chunkedEncoding && response.socket) {
      return new ChunkedStream(response, response.socket);
    }
    return new WritableStream(body, this);
  }

  #send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable {
    this.#dropWithheld(head.headers);
    const bodyless = this.method === 'HEAD' || BODYLESS.has(head.status);
    if (head.status === 205) head.headers.set('content-length', '0');
    // RFC 9110 §8.6: what is lawful for HEAD and 304 is not for 204.
    if (head.status === 204) head.headers.delete('content-length');
    let body = isHttp2(this.#response)
      ? this.#beginHttp2(this.#response.stream, head, bodyless)
      : this.#beginHttp1(this.#response, head, bodyless);
    this.#status = head.status;
    if (bodyless) body = discarding(body);
    else for (const wrap of wrappers) body = wrap(body);
    return body;
  }

  end(body: Writable, trailers: HeaderList): void {
    this.#dropWithheld(trailers);
    if (this.#held?.body === body) this.#held.end(trailers);
    else this.#end(body, trailers);
  }

  #end(body: Writable, trailers: HeaderList): void {
    if (isHttp2(this.#response)) {
      this.#response.addTrailers(http2Record(trailers));
    } else if (this.#response.chunkedEncoding) {
      this.#response.addTrailers(
        [...trailers].map(([name, value]): [string, string] => [name, value]),
      );
    }
    body.end();
  }

  abort(): void {
    this.#abort?.abort();
    if (isHttp2(this.#response)) {
      // RFC 9113 §8.1: INTERNAL_ERROR tells the client that the response is not complete.
      this.#response.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      return;
    }
    const { socket } = this.#request;
    // A body that only the end of the connection delimits looks complete after an orderly end.
    if (this.httpVersion === '1.0') reset(socket);
    this.#response.destroy();
  }

  /** RFC 9110 §15.5.9: whoever reads the body answers 408, if there is still somebody to answer. */
  #fallSilent(): void {
    if (!this.begun) this.#isSilent = true;
    // Once answered, the response no longer holds the connection that waits for the rest.
    else if (isHttp2(this.#response)) this.abort();
    else this.#request.socket.destroy();
  }

  #refuseSecondHead(): void {
    if (!this.begun) return;
    throw new HubgateError('response-begun', 'The head of this response has already been sent');
  }

  /**
   * Runs the transforms, once even when one throws, and collects the wrappers, innermost first.
   * After one that waits the others run when it is done.
   */
  #transform(head: ResponseHead, wrappers: BodyWrapper[]): Promise<void> | undefined {
    for (let next = this.#transforms.pop(); next !== undefined; next = this.#transforms.pop()) {
      const result = next(head);
      if (result instanceof Promise) return result.then(() => this.#transform(head, wrappers));
      if (result !== undefined) wrappers.unshift(result);
    }
    return undefined;
  }

  #dropWithheld(headers: HeaderList): void {
    for (const name of this.#withheld) headers.delete(name);
  }

  #beginHttp1(response: ServerResponse, head: ResponseHead, bodyless: boolean): Writable {
    const { headers } = head;
    // Node throws for a Trailer field where it sends no chunks.
    if (bodyless || this.httpVersion === '1.0' || headers.has('content-length')) {
      headers.delete('trailer');
    }
    // RFC 9110 §10.1.1: whether the body still follows cannot be known, so neither where it ends.
    if (this.#awaitsContinue || this.#isSilent) response.shouldKeepAlive = false;
    response.writeHead(head.status, headers.toRaw());
    // Not flushHeaders(): Node would write the head as UTF-8 and so mangle bytes beyond ASCII.
    response.write(NOTHING);
    return response;
  }

  #beginHttp2(stream: ServerHttp2Stream, head: ResponseHead, bodyless: boolean): Writable {
    if (stream.destroyed || stream.closed) return stream;
    // RFC 9110 §15: a client treats a status beyond 599 as 500; HTTP/2 here cannot carry it.
    const fields = http2Head(head.status > 599 ? 500 : head.status, head.headers);
    stream.respond(fields, bodyless ? { endStream: true } : { waitForTrailers: true });
    // RFC 9113 §8.1: after the answer the rest of the request is not wanted.
    if (this.#isSilent || this.#awaitsContinue) {
      stream.once('finish', () => stream.close(constants.NGHTTP2_NO_ERROR));
    }
    return stream;
  }
}

/** Resets what carries the bytes: for TLS the socket beneath, so that no close_notify goes before. */
function reset(socket: Socket): void {
  const parent = '_parent' in socket ? socket._parent : null;
  const carrier = parent instanceof Socket ? parent : socket;
  // A Unix socket, which has no address, knows no reset, and Node throws.
  if (carrier.remoteAddress !== undefined) carrier.resetAndDestroy();
}

function abortWithResponse(response: ServerResponse, abort: AbortController): void {
  if (response.destroyed && !response.writableFinished) abort.abort();
  response.once('close', () => {
    if (!response.writableFinished) abort.abort();
  });
}

function abortWithStream(stream: ServerHttp2Stream, abort: AbortController): void {
  const check = (): void => {
    // A stream that the client reset reports its writable side as finished nevertheless.
    if (stream.aborted || stream.rstCode !== 0 || !stream.writableFinished) abort.abort();
  };
  if (stream.destroyed || stream.closed) check();
  stream.once('aborted', check);
  stream.once('close', check);
}

function http2Head(status: number, headers: HeaderList): OutgoingHttpHeaders {
  return { ...http2Record(headers), ':status': status };
}

/** As Node's HTTP/2 takes fields; it throws where some field occurs twice, so lists are joined. */
function http2Record(headers: HeaderList): Record<string, string | string[]> {
  const record = http2Fields(headers.toRaw()).toRecord();
  for (const [name, value] of Object.entries(record)) {
    if (typeof value !== 'string' && name !== 'set-cookie') record[name] = value.join(', ');
  }
  if (record['te'] !== undefined && record['te'] !== 'trailers') delete record['te'];
  return record;
}

/** Fields without pseudo and connection-specific ones; cookie crumbs joined (RFC 9113 §8.2.3). */
function http2Fields(raw: readonly string[]): HeaderList {
  const list = new HeaderList();
  const crumbs: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = (raw[i] ?? '').toLowerCase();
    const value = raw[i + 1] ?? '';
    if (name === 'cookie') crumbs.push(value);
    else if (!name.startsWith(':') && !FORBIDDEN_ON_HTTP2.has(name)) list.append(name, value);
  }
  if (crumbs.length > 0) list.append('cookie', crumbs.join('; '));
  return list;
}

function discarding(body: Writable): Writable {
  return new Writable({
    write: (_chunk, _encoding, done) => done(),
    final: (done) => {
      if (!body.writableEnded) body.end();
      done();
    },
  });
}

function isHttp2(response: NodeResponse): response is Http2ServerResponse {
  return 'stream' in response;
}

function versionOf(request: NodeRequest): '1.0' | '1.1' | '2.0' {
  if (request.httpVersionMajor === 2) return '2.0';
  return request.httpVersionMinor === 0 ? '1.0' : '1.1';
}

/** RFC 9112 §3.2.2: an absolute-form target names authority and path. */
function parseTarget(target: string): { authority: string | null; target: string } {
  const absolute = /^[A-Za-z][A-Za-z0-9+.-]*:\/\/([^/?#]*)(.*)$/.exec(target);
  if (absolute === null) return { authority: null, target };
  const [, authority = '', path = ''] = absolute;
  const host = authority.slice(authority.lastIndexOf('@') + 1);
  return { authority: host, target: path.startsWith('/') ? path : `/${path}` };
}
