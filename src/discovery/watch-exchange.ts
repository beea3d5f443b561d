import { randomUUID } from 'node:crypto';
import { Writable } from 'node:stream';
import type { BodyWrapper, Exchange, ResponseHead } from '../http/exchange.ts';
import { discarding } from '../http/deferred-body.ts';
import { GatewayRequest, isBodyless, wrapped } from '../http/exchange-response.ts';
import { HeaderList } from '../http/header-list.ts';
import { Identity } from '../http/identity.ts';
import { withPreset } from '../http/header-operations.ts';
import { HubgateError } from '../kernel/error.ts';
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
export class WatchExchange extends GatewayRequest implements Exchange {
  readonly id = randomUUID();
  readonly log: Logger;
  readonly scheme: 'http' | 'https';
  readonly httpVersion = '1.1';
  readonly originalHost: string;
  host: string;
  readonly originalTarget: string;
  readonly rawTarget = null;
  target: string;
  readonly headers: HeaderList;
  readonly remoteAddress = NOBODY;
  readonly remotePort = 0;
  readonly clientAddress = NOBODY;
  readonly identity = new Identity();
  readonly variables = new Map<string, string>();
  readonly preset = new HeaderList();
  readonly responseBytes = 0;
  readonly tlsVersion = null;
  upstream: Exchange['upstream'] = null;
  trace: Exchange['trace'] = null;
  /** Resolves once, when the answer is complete, or null if there is none. */
  readonly answer: Promise<WatchedAnswer | null>;
  #settle: (answer: WatchedAnswer | null) => void = () => {};

  /** @param target path and query in their canonical form */
  constructor(url: URL, target: string, log: Logger, validators: readonly [string, string][] = []) {
    super();
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

  override abandon(): void {
    this.#settle(null);
    super.abandon();
  }

  takeOver(): void {
    throw new HubgateError('no-connection', 'A watched page has no connection');
  }

  inform(): void {}

  protected addPreset(head: ResponseHead): void {
    withPreset(head, this.preset);
  }

  protected finish(body: Writable): void {
    body.end();
  }

  protected breakOff(): void {
    this.#settle(null);
  }

  protected send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable {
    const type = head.headers.get('content-type') ?? '';
    if (/^text\/event-stream\b/i.test(type)) {
      this.#settle({ head, body: null });
      // Later, because the handler is in the middle of its response.
      setImmediate(() => this.abandon());
      return discarding();
    }
    const sink = this.#collecting(head);
    if (isBodyless('GET', head)) return discarding(sink);
    return wrapped(sink, wrappers);
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
