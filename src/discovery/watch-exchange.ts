import { randomUUID } from 'node:crypto';
import { Readable, Writable } from 'node:stream';
import type {
  Exchange,
  HeadInterceptor,
  HeadTransform,
  ResponseHead,
  ResponseStream,
} from '../http/exchange.ts';
import { DeferredBody, discarding, HeadChanges, isBodyless } from '../http/head-changes.ts';
import { HeaderList } from '../http/header-list.ts';
import { Identity } from '../http/identity.ts';
import { withPreset } from '../http/preset-fields.ts';
import { WritableStream } from '../http/writable-stream.ts';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';

/** Bytes of a body that are compared. A larger page can only be watched by its `ETag`. */
export const MAX_WATCHED_BODY = 1024 * 1024;
/** The unspecified address: no rule for private or local clients applies to a request of nobody. */
const NOBODY = '0.0.0.0';

/** What a page looks like to a visitor without cookies. */
export interface WatchedAnswer {
  readonly head: ResponseHead;
  /** null if it is larger than {@link MAX_WATCHED_BODY}, incomplete, or an event stream. */
  readonly body: Buffer | null;
}

/**
 * A GET request of the gateway itself, on behalf of nobody: no cookies, no credentials, no identity, and an
 * address that no client has. It passes the routes of its site as a client's request does. A cache passes it
 * on (`no-store`), and other caches on the way ask the app (`no-cache`).
 */
export class WatchExchange implements Exchange {
  readonly id = randomUUID();
  readonly log: Logger;
  readonly scheme: 'http' | 'https';
  readonly httpVersion = '1.1';
  method = 'GET';
  readonly originalMethod = 'GET';
  readonly originalHost: string;
  host: string;
  readonly originalTarget: string;
  readonly rawTarget = null;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress = NOBODY;
  readonly remotePort = 0;
  readonly clientAddress = NOBODY;
  body: Readable = Readable.from([]);
  readonly hasBody = false;
  readonly isBodyWhole = false;
  readonly identity = new Identity();
  readonly variables = new Map<string, string>();
  readonly upgrade = null;
  readonly preset = new HeaderList();
  readonly responseBytes = 0;
  readonly tlsVersion = null;
  upstream: Exchange['upstream'] = null;
  trace: Exchange['trace'] = null;
  /** Resolves once, when the answer is complete, or null if there is none. */
  readonly answer: Promise<WatchedAnswer | null>;
  readonly #changes = new HeadChanges();
  readonly #leaving = new Set<() => void>();
  readonly #controller = new AbortController();
  #settle: (answer: WatchedAnswer | null) => void = () => {};
  #status = 0;
  #held: DeferredBody | null = null;

  /** @param target path and query in their canonical form */
  constructor(url: URL, target: string, log: Logger, validators: readonly [string, string][] = []) {
    this.log = log;
    this.scheme = url.protocol === 'https:' ? 'https' : 'http';
    this.originalHost = url.host;
    this.host = url.host;
    this.originalTarget = target;
    this.target = target;
    this.headers = new HeaderList();
    for (const [name, value] of [
      ['Host', url.host],
      ['Accept', 'text/html, */*;q=0.8'],
      ['Cache-Control', 'no-cache, no-store'],
      ['User-Agent', 'hubgate (watch)'],
      ...validators,
    ] as const) {
      this.headers.append(name, value);
    }
    this.answer = new Promise((resolve) => {
      this.#settle = resolve;
    });
  }

  get abandoned(): boolean {
    return this.#controller.signal.aborted;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The answer is not wanted any longer. */
  abandon(): void {
    if (this.abandoned) return;
    this.#settle(null);
    for (const listener of this.#leaving) listener();
    this.#leaving.clear();
    this.#controller.abort();
  }

  onAbandoned(listener: () => void): () => void {
    if (this.abandoned) queueMicrotask(listener);
    else this.#leaving.add(listener);
    return () => this.#leaving.delete(listener);
  }

  lendBody(): null {
    return null;
  }

  forgoBody(): void {}

  trailers(): HeaderList {
    return new HeaderList();
  }

  takeOver(): void {
    throw new HubgateError('no-connection', 'A watched page has no connection');
  }

  get begun(): boolean {
    return this.#status !== 0;
  }

  get status(): number {
    return this.#status;
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
  }

  onTrailers(read: (trailers: HeaderList) => void): void {
    this.#changes.addTrailerReader(read);
  }

  inform(): void {}

  begin(head: ResponseHead): Writable {
    const intercepted = this.#changes.intercept(head);
    if (intercepted !== null) {
      this.#status = head.status;
      return intercepted;
    }
    withPreset(head, this.preset);
    const wrappers: Parameters<HeadChanges['apply']>[1] = [];
    const waiting = this.#changes.apply(head, wrappers);
    this.#status = head.status;
    if (waiting === undefined) return this.#receive(head, wrappers);
    this.#held = new DeferredBody({
      begin: () => waiting.then(() => this.#receive(head, wrappers)),
      end: (body) => body.end(),
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
    else {
      this.#changes.applyTrailers(trailers);
      body.end();
    }
  }

  abort(): void {
    if (this.#changes.taken === null) this.#settle(null);
  }

  #receive(head: ResponseHead, wrappers: Parameters<HeadChanges['apply']>[1]): Writable {
    this.#changes.drop(head.headers);
    const type = head.headers.get('content-type') ?? '';
    if (/^text\/event-stream\b/i.test(type)) {
      this.#settle({ head, body: null });
      // Later, because the handler is in the middle of its response.
      setImmediate(() => this.abandon());
      return new Writable({ write: (_chunk, _encoding, done) => done() });
    }
    const sink = this.#collecting(head);
    if (isBodyless('GET', head)) return discarding(sink);
    return wrappers.reduce<Writable>((inner, wrap) => wrap(inner), sink);
  }

  #collecting(head: ResponseHead): Writable {
    const chunks: Buffer[] = [];
    let size = 0;
    return new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        size += chunk.length;
        if (size <= MAX_WATCHED_BODY) chunks.push(chunk);
        else if (chunks.length > 0) {
          chunks.length = 0;
          this.#settle({ head, body: null });
          setImmediate(() => this.abandon());
        }
        done();
      },
      final: (done) => {
        const body = size <= MAX_WATCHED_BODY ? Buffer.concat(chunks) : null;
        this.#settle({ head, body });
        done();
      },
    });
  }
}
