import { Readable, type Writable } from 'node:stream';
import type {
  BodyLease,
  Exchange,
  HeadInterceptor,
  HeadTransform,
  LeasedBody,
  ResponseHead,
  ResponseStream,
  UpgradeRequest,
  UpstreamVisit,
} from '../http/exchange.ts';
import { HeaderList } from '../http/header-list.ts';
import type { Identity } from '../http/identity.ts';
import type { TraceContext } from '../http/trace-context.ts';
import { WritableStream } from '../http/exchange-response.ts';
import type { Logger } from '../kernel/log.ts';

export interface SubRequest {
  readonly method: string;
  readonly target: string;
  /** A copy, or those of the original request itself. */
  readonly variables: Map<string, string>;
  /** The source of the response, if it goes to the client; null leaves that to the handler that responds. */
  readonly source: ResponseHead['source'] | null;
  /** Whether it has the body of the original request, of which nothing has been read. */
  readonly hasBody?: boolean;
  /** Receives the head; null leaves it to the client's own exchange. */
  readonly intercept: ((head: ResponseHead) => Writable | null) | null;
}

/**
 * A request on behalf of another one: the same client, but its own method and target, and no body unless it
 * gets that of the original. Its response goes to the client unless it is intercepted.
 */
export class SubExchange implements Exchange {
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  method: string;
  readonly originalMethod: string;
  readonly originalHost: string;
  host: string;
  readonly originalTarget: string;
  readonly rawTarget = null;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly clientAddress: string;
  readonly hasBody: boolean;
  /** The identity of the original request. */
  readonly identity: Identity;
  readonly variables: Map<string, string>;
  readonly upgrade: UpgradeRequest | null = null;
  readonly dependsOn: NonNullable<Exchange['dependsOn']>;
  readonly #parent: Exchange;
  readonly #source: SubRequest['source'];
  readonly #intercept: SubRequest['intercept'];
  readonly #transforms: HeadTransform[] = [];
  /** A response for the client has the fields that were set for the client. */
  readonly preset: HeaderList;
  #intercepted = 0;
  #ownBody: Readable | null = null;

  constructor(parent: Exchange, request: SubRequest) {
    this.#parent = parent;
    this.#source = request.source;
    this.#intercept = request.intercept;
    this.preset = request.intercept === null ? parent.preset : new HeaderList();
    this.scheme = parent.scheme;
    this.httpVersion = parent.httpVersion;
    this.method = request.method;
    this.originalMethod = parent.originalMethod;
    this.originalHost = parent.originalHost;
    this.host = parent.host;
    this.originalTarget = parent.originalTarget;
    this.target = request.target;
    this.headers = parent.headers.clone();
    this.hasBody = request.hasBody === true;
    if (!this.hasBody) {
      for (const name of ['content-length', 'transfer-encoding', 'expect', 'trailer']) {
        this.headers.delete(name);
      }
    }
    this.remoteAddress = parent.remoteAddress;
    this.remotePort = parent.remotePort;
    this.clientAddress = parent.clientAddress;
    this.identity = parent.identity;
    this.variables = request.variables;
    this.dependsOn = (on) => parent.dependsOn?.(on);
  }

  get id(): string {
    return this.#parent.id;
  }

  get log(): Logger {
    return this.#parent.log;
  }

  get abandoned(): boolean {
    return this.#parent.abandoned;
  }

  get body(): Readable {
    if (this.hasBody) return this.#parent.body;
    this.#ownBody ??= Readable.from([]);
    return this.#ownBody;
  }

  set body(body: Readable) {
    if (this.hasBody) this.#parent.body = body;
    else this.#ownBody = body;
  }

  lendBody(loan: BodyLease): LeasedBody | null {
    return this.hasBody ? this.#parent.lendBody(loan) : null;
  }

  get isBodyWhole(): boolean {
    return this.hasBody && this.#parent.isBodyWhole;
  }

  discardBody(): void {
    if (this.hasBody) this.#parent.discardBody();
  }

  onAbandoned(listener: () => void): () => void {
    return this.#parent.onAbandoned(listener);
  }

  get signal(): AbortSignal {
    return this.#parent.signal;
  }

  get begun(): boolean {
    return this.status !== 0;
  }

  get status(): number {
    return this.#intercepted === 0 ? this.#parent.status : this.#intercepted;
  }

  get responseBytes(): number {
    return this.#parent.responseBytes;
  }

  get tlsVersion(): string | null {
    return this.#parent.tlsVersion;
  }

  get upstream(): UpstreamVisit | null {
    return this.#parent.upstream;
  }

  get trace(): TraceContext | null {
    return this.#parent.trace;
  }

  set upstream(visit: UpstreamVisit | null) {
    this.#parent.upstream = visit;
  }

  trailers(): HeaderList {
    return this.hasBody ? this.#parent.trailers() : new HeaderList();
  }

  takeOver(head: ResponseHead): void {
    this.#parent.takeOver(this.#owned(head));
  }

  interceptHead(look: HeadInterceptor): () => void {
    return this.#parent.interceptHead(look);
  }

  onHead(transform: HeadTransform): void {
    this.#transforms.push(transform);
  }

  withhold(name: string): void {
    this.#parent.withhold(name);
  }

  onTrailers(read: (trailers: HeaderList) => void): void {
    this.#parent.onTrailers(read);
  }

  inform(status: number, headers: HeaderList): void {
    if (this.#intercept === null) this.#parent.inform(status, headers);
  }

  begin(head: ResponseHead): Writable {
    return this.#taken(head) ?? this.#parent.begin(this.#owned(head));
  }

  stream(head: ResponseHead): ResponseStream {
    const taken = this.#taken(head);
    return taken === null
      ? this.#parent.stream(this.#owned(head))
      : new WritableStream(taken, this);
  }

  /** The destination of an intercepted body; null if the response goes to the client. */
  #taken(head: ResponseHead): Writable | null {
    const taken = this.#intercept?.(head) ?? null;
    if (taken !== null) this.#intercepted = head.status;
    else for (const transform of this.#transforms.splice(0)) this.#parent.onHead(transform);
    return taken;
  }

  end(body: Writable, trailers: HeaderList): void {
    if (this.#intercepted === 0) this.#parent.end(body, trailers);
    else body.end();
  }

  abort(): void {
    if (this.#intercepted === 0) this.#parent.abort();
  }

  #owned(head: ResponseHead): ResponseHead {
    return this.#source === null ? head : { ...head, source: this.#source };
  }
}
