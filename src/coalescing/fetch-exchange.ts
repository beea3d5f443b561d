import { copiedVariables } from '../http/late-values.ts';
import { Readable, type Writable } from 'node:stream';
import type {
  Dependence,
  Exchange,
  HeadInterceptor,
  HeadTransform,
  ResponseHead,
  ResponseStream,
  UpstreamVisit,
} from '../http/exchange.ts';
import { DeferredBody, discarding, HeadChanges, isBodyless } from '../http/head-changes.ts';
import type { HeaderList } from '../http/header-list.ts';
import { HeaderList as Fields } from '../http/header-list.ts';
import type { Identity } from '../http/identity.ts';
import type { TraceContext } from '../http/trace-context.ts';
import { WritableStream } from '../http/writable-stream.ts';
import { withPreset } from '../http/preset-fields.ts';
import { messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';

/** The destination of the response. */
export interface FetchSink {
  /**
   * Returns the stream for the body, or the head with which the response goes to the client of the request.
   */
  take(head: ResponseHead): { readonly body: Writable } | { readonly pass: ResponseHead };
  /** The body is complete; its end follows. */
  trailers(trailers: HeaderList): void;
  /** The body was aborted. */
  broken(): void;
}

/**
 * The request to the app on behalf of one or more clients: it has the client of the first request, but its
 * own body, response and end. Changes that later handlers make to the head are applied here, so
 * the result is what they would have sent.
 */
export class FetchExchange implements Exchange {
  readonly scheme: 'http' | 'https';
  readonly httpVersion: '1.0' | '1.1' | '2.0';
  method = 'GET';
  readonly originalMethod = 'GET';
  readonly originalHost: string;
  host: string;
  readonly originalTarget: string;
  readonly rawTarget: string | null;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly clientAddress: string;
  body: Readable = Readable.from([]);
  readonly hasBody = false;
  readonly isBodyWhole = false;
  /**
   * The preset fields of the request itself, and those that later handlers add. Only the latter
   * become part of the stored response.
   */
  readonly preset: HeaderList;
  readonly identity: Identity;
  readonly variables: Map<string, string>;
  readonly upgrade = null;
  readonly standsFor: Exchange;
  /** Request fields that decided something on the way, in lower case. */
  readonly decidingFields = new Set<string>();
  /** Something else on which the response depends, so that it cannot be shared; null if there is nothing. */
  unsharedBy: 'client' | 'file' | null = null;
  readonly #parent: Exchange;
  readonly #sink: FetchSink;
  readonly #isAlone: boolean;
  readonly #inherited: ReadonlySet<string>;
  readonly #changes = new HeadChanges();
  readonly #leaving = new Set<() => void>();
  #controller: AbortController | null = null;
  #isAbandoned = false;
  #status = 0;
  #passes = false;
  #held: DeferredBody | null = null;
  #upstream: UpstreamVisit | null = null;

  /** @param isBackground no client waits for the response */
  constructor(parent: Exchange, headers: HeaderList, sink: FetchSink, isBackground: boolean) {
    this.#parent = parent;
    this.standsFor = parent.standsFor ?? parent;
    this.#sink = sink;
    this.#isAlone = isBackground;
    this.scheme = parent.scheme;
    this.httpVersion = parent.httpVersion;
    this.originalHost = parent.originalHost;
    this.host = parent.host;
    this.preset = parent.preset.clone();
    this.#inherited = new Set(fieldsOf(this.preset));
    this.originalTarget = parent.originalTarget;
    this.rawTarget = parent.rawTarget;
    this.target = parent.target;
    this.headers = headers;
    this.remoteAddress = parent.remoteAddress;
    this.remotePort = parent.remotePort;
    this.clientAddress = parent.clientAddress;
    this.identity = parent.identity;
    this.variables = isBackground ? copiedVariables(parent) : parent.variables;
  }

  readonly dependsOn = (on: Dependence): void => {
    if (typeof on === 'string') this.unsharedBy = on;
    else this.decidingFields.add(on.field.toLowerCase());
    this.#parent.dependsOn?.(on);
  };

  get id(): string {
    return this.#parent.id;
  }

  get log(): Logger {
    return this.#parent.log;
  }

  get abandoned(): boolean {
    return this.#isAbandoned;
  }

  /** No client wants the response any longer. */
  abandon(): void {
    if (this.#isAbandoned) return;
    this.#isAbandoned = true;
    for (const listener of this.#leaving) listener();
    this.#leaving.clear();
    this.#controller?.abort();
  }

  onAbandoned(listener: () => void): () => void {
    if (this.#isAbandoned) queueMicrotask(listener);
    else this.#leaving.add(listener);
    return () => this.#leaving.delete(listener);
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#isAbandoned) this.#controller.abort();
    return this.#controller.signal;
  }

  lendBody(): null {
    return null;
  }

  forgoBody(): void {}

  get begun(): boolean {
    return this.#status !== 0;
  }

  get status(): number {
    return this.#status;
  }

  get responseBytes(): number {
    return this.#parent.responseBytes;
  }

  get tlsVersion(): string | null {
    return this.#parent.tlsVersion;
  }

  get upstream(): UpstreamVisit | null {
    return this.#upstream;
  }

  set upstream(visit: UpstreamVisit | null) {
    this.#upstream = visit;
    if (!this.#isAlone) this.#parent.upstream = visit;
  }

  get trace(): TraceContext | null {
    return this.#parent.trace;
  }

  trailers(): HeaderList {
    return new Fields();
  }

  takeOver(head: ResponseHead): void {
    this.#parent.takeOver(head);
  }

  interceptHead(look: HeadInterceptor): () => void {
    this.#changes.addInterceptor(look);
    return () => {
      if (this.#changes.removeInterceptor(look)) this.#status = 0;
    };
  }

  onHead(transform: HeadTransform): void {
    this.#changes.add(transform);
  }

  withhold(name: string): void {
    this.#changes.withhold(name);
    if (!this.#isAlone) this.#parent.withhold(name);
  }

  onTrailers(read: (trailers: HeaderList) => void): void {
    this.#changes.addTrailerReader(read);
  }

  inform(status: number, headers: HeaderList): void {
    if (!this.#isAlone && !this.begun) this.#parent.inform(status, headers);
  }

  begin(head: ResponseHead): Writable {
    const intercepted = this.#changes.intercept(head);
    if (intercepted !== null) {
      this.#status = head.status;
      return intercepted;
    }
    this.preset.deleteWhere((name, value) => this.#inherited.has(fieldOf(name, value)));
    withPreset(head, this.preset);
    const wrappers: Parameters<HeadChanges['apply']>[1] = [];
    const waiting = this.#changes.apply(head, wrappers);
    this.#status = head.status;
    if (waiting === undefined) return this.#deliver(head, wrappers);
    this.#held = new DeferredBody({
      begin: () => waiting.then(() => this.#deliver(head, wrappers)),
      end: (body, trailers) => this.#end(body, trailers),
      fail: (error) => {
        this.log.error('A queued response head could not be sent', { error: messageOf(error) });
        this.abort();
      },
    });
    return this.#held.body;
  }

  stream(head: ResponseHead): ResponseStream {
    return new WritableStream(this.begin(head), this);
  }

  end(body: Writable, trailers: HeaderList): void {
    if (this.#changes.taken === body) body.end();
    else if (this.#held?.body === body) this.#held.end(trailers);
    else this.#end(body, trailers);
  }

  abort(): void {
    if (this.#changes.taken !== null) return;
    if (this.#passes) this.#parent.abort();
    else this.#sink.broken();
  }

  #deliver(head: ResponseHead, wrappers: Parameters<HeadChanges['apply']>[1]): Writable {
    this.#changes.drop(head.headers);
    const taken = this.#sink.take(head);
    this.#passes = 'pass' in taken;
    this.#status = head.status;
    const body = 'pass' in taken ? this.#parent.begin(taken.pass) : taken.body;
    if (!this.#passes && isBodyless(this.originalMethod, head)) return discarding(body);
    return wrappers.reduce<Writable>((inner, wrap) => wrap(inner), body);
  }

  #end(body: Writable, trailers: HeaderList): void {
    this.#changes.applyTrailers(trailers);
    if (this.#passes) this.#parent.end(body, trailers);
    else {
      this.#sink.trailers(trailers);
      body.end();
    }
  }
}

function fieldsOf(headers: HeaderList): readonly string[] {
  return [...headers].map(([name, value]) => fieldOf(name, value));
}

function fieldOf(name: string, value: string): string {
  return `${name.toLowerCase()}: ${value}`;
}
