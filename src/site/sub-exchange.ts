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
import type { Logger } from '../kernel/log.ts';

export interface SubRequest {
  readonly method: string;
  readonly target: string;
  /** Whether it has the body of the original request, of which nothing has been read. */
  readonly hasBody: boolean;
}

/**
 * A request on behalf of another one: the same client, but its own method and target, and no body unless it
 * gets that of the original. Its response goes to the client.
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
  readonly #transforms: HeadTransform[] = [];
  readonly preset: HeaderList;
  #ownBody: Readable | null = null;

  /** @param dependsOn told instead of the original request */
  constructor(
    parent: Exchange,
    request: SubRequest,
    dependsOn: NonNullable<Exchange['dependsOn']> = (on, field) => parent.dependsOn?.(on, field),
  ) {
    this.#parent = parent;
    this.preset = parent.preset;
    this.scheme = parent.scheme;
    this.httpVersion = parent.httpVersion;
    this.method = request.method;
    this.originalMethod = parent.originalMethod;
    this.originalHost = parent.originalHost;
    this.host = parent.host;
    this.originalTarget = parent.originalTarget;
    this.target = request.target;
    this.headers = parent.headers.clone();
    this.hasBody = request.hasBody;
    if (!this.hasBody) {
      for (const name of ['content-length', 'transfer-encoding', 'expect', 'trailer']) {
        this.headers.delete(name);
      }
    }
    this.remoteAddress = parent.remoteAddress;
    this.remotePort = parent.remotePort;
    this.clientAddress = parent.clientAddress;
    this.identity = parent.identity;
    this.variables = parent.variables;
    this.dependsOn = dependsOn;
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

  get isBodyLent(): boolean {
    return this.hasBody && this.#parent.isBodyLent;
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
    return this.#parent.status;
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
    this.#parent.takeOver(head);
  }

  interceptHead(look: HeadInterceptor): () => void {
    return this.#parent.interceptHead(look);
  }

  onHead(transform: HeadTransform): void {
    this.#transforms.push(transform);
  }

  withhold(names: readonly string[]): void {
    this.#parent.withhold(names);
  }

  onTrailers(read: (trailers: HeaderList) => void): void {
    this.#parent.onTrailers(read);
  }

  inform(status: number, headers: HeaderList): void {
    this.#parent.inform(status, headers);
  }

  begin(head: ResponseHead): Writable {
    this.#handOverTransforms();
    return this.#parent.begin(head);
  }

  stream(head: ResponseHead): ResponseStream {
    this.#handOverTransforms();
    return this.#parent.stream(head);
  }

  #handOverTransforms(): void {
    for (const transform of this.#transforms.splice(0)) this.#parent.onHead(transform);
  }

  end(body: Writable, trailers: HeaderList): void {
    this.#parent.end(body, trailers);
  }

  abort(body?: Writable | null): void {
    this.#parent.abort(body);
  }
}
