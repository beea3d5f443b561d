// A response passes the same steps whether it goes to a client, into a cache or to a comparison. A transform
// of a head can return a promise, for instance while it requests a token. Data that is written in the meantime
// is held back, up to the stream's high-water mark.

import { Readable, type Writable } from 'node:stream';
import { HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type {
  BodyWrapper,
  Exchange,
  HeadInterceptor,
  HeadTransform,
  ResponseHead,
  ResponseStream,
  StreamListener,
} from './exchange.ts';
import { DeferredBody, isUnwanted } from './deferred-body.ts';
import { DisconnectSignal } from './disconnect-signal.ts';
import { HeaderList } from './header-list.ts';

type TrailerReader = (trailers: HeaderList) => void;

/**
 * The response of an exchange: the part of `Exchange` that every implementation shares. A head is offered to
 * the interceptors, then gets the preset fields, passes the transforms, loses the withheld fields and is sent,
 * once.
 */
export abstract class ExchangeResponse {
  // Most exchanges have few of these, or none.
  /** The transform that runs first, which was added last, and the others. */
  #transform: HeadTransform | null = null;
  #earlierTransforms: HeadTransform[] | null = null;
  #withheld: readonly string[] | null = null;
  #trailerReaders: TrailerReader[] | null = null;
  #interceptors: HeadInterceptor[] | null = null;
  #taken: Writable | null = null;
  #taker: HeadInterceptor | null = null;
  #status = 0;

  /** The method of the client's own request, by which it reads the response. */
  abstract readonly originalMethod: string;
  abstract readonly log: Logger;
  abstract readonly signal: AbortSignal;

  /** Adds what the head must have before the transforms see it. */
  protected abstract prepare(head: ResponseHead): void;
  /** Adds the preset fields of the exchange to the head. */
  protected abstract addPreset(head: ResponseHead): void;
  /** Sends the head and returns the stream for the body. The wrappers are innermost first. */
  protected abstract send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable;
  /** Sends the trailer fields and ends the body that `send` has returned. */
  protected abstract finish(body: Writable, trailers: HeaderList): void;
  /** Aborts a response that no interceptor has taken. */
  protected abstract breakOff(): void;

  get begun(): boolean {
    return this.#status !== 0;
  }

  get status(): number {
    return this.#status;
  }

  /** The body of the response that an interceptor has taken; null if there is none. */
  protected get taken(): Writable | null {
    return this.#taken;
  }

  interceptHead(look: HeadInterceptor): () => void {
    this.#interceptors = added(this.#interceptors, look);
    return () => {
      this.#interceptors = this.#interceptors?.filter((one) => one !== look) ?? null;
      if (this.#taker !== look) return;
      // A response that was taken counts as never sent.
      this.#status = 0;
      this.#taken = null;
      this.#taker = null;
    };
  }

  onHead(transform: HeadTransform): void {
    if (this.#transform !== null) {
      this.#earlierTransforms = added(this.#earlierTransforms, this.#transform);
    }
    this.#transform = transform;
  }

  /** Hands the transforms to another exchange, which sends the response instead. */
  protected moveTransforms(to: { onHead(transform: HeadTransform): void }): void {
    for (const transform of this.#earlierTransforms?.splice(0) ?? []) to.onHead(transform);
    if (this.#transform !== null) to.onHead(this.#transform);
    this.#transform = null;
  }

  withhold(names: readonly string[]): void {
    const before = this.#withheld;
    this.#withheld = before === null ? names : [...before, ...names];
  }

  onTrailers(read: TrailerReader): void {
    this.#trailerReaders = added(this.#trailerReaders, read);
  }

  begin(head: ResponseHead): Writable {
    this.#refuseSecondHead();
    if (head.isWhole === true) frameAsEmpty(this.originalMethod, head);
    const taken = head.opensTunnel === true ? null : this.#intercept(head);
    if (taken !== null) {
      this.#status = head.status;
      return taken;
    }
    this.prepare(head);
    this.addPreset(head);
    const wrappers: BodyWrapper[] = [];
    const waiting = this.#runTransforms(head, wrappers);
    if (waiting === undefined) return this.#send(head, wrappers);
    this.#status = head.status;
    const body = new DeferredBody();
    waiting
      .then(() => body.decide(this.#send(head, wrappers)))
      .catch((error: unknown) => {
        this.log.error('A queued response head could not be sent', { error: messageOf(error) });
        this.abort();
        body.decide(null);
      });
    return body;
  }

  stream(head: ResponseHead): ResponseStream {
    return new WritableStream(this.begin(head), this);
  }

  end(body: Writable, trailers: HeaderList): void {
    if (body instanceof DeferredBody) body.endBy((target) => this.end(target, trailers));
    else if (this.#taken === body) body.end();
    else this.#end(body, trailers);
  }

  /** The destination of an intercepted response gets no more, but its client is not cut off. */
  abort(body: Writable | null = null): void {
    if (body !== null && isUnwanted(body)) return;
    // The response of the exchange is not this one.
    if (body instanceof DeferredBody && body.isHeld) body.destroy();
    else if (this.#taken === null) this.breakOff();
  }

  /** Prepares the head of a connection that is taken over. It does not wait for transforms. */
  protected beginTakeOver(head: ResponseHead): void {
    this.#refuseSecondHead();
    this.addPreset(head);
    void this.#runTransforms(head, []);
    this.dropWithheld(head.headers);
    this.#status = head.status;
  }

  protected dropWithheld(headers: HeaderList): void {
    if (this.#withheld !== null) for (const name of this.#withheld) headers.delete(name);
  }

  #refuseSecondHead(): void {
    if (!this.begun) return;
    throw new HubgateError('response-begun', 'The head of this response has already been sent');
  }

  /** Offers a head to the interceptors, the last one first, until one takes it. */
  #intercept(head: ResponseHead): Writable | null {
    if (this.#interceptors === null) return null;
    for (const look of this.#interceptors.toReversed()) {
      this.#taken = look(head);
      if (this.#taken === null) continue;
      this.#taker = look;
      break;
    }
    return this.#taken;
  }

  /**
   * Runs the transforms, each once even if one throws, and collects the wrappers, innermost first. If a
   * transform returns a promise, the others run when it has resolved.
   */
  #runTransforms(head: ResponseHead, wrappers: BodyWrapper[]): Promise<void> | undefined {
    while (this.#transform !== null) {
      const next = this.#transform;
      this.#transform = this.#earlierTransforms?.pop() ?? null;
      const result = next(head);
      if (result instanceof Promise) return result.then(() => this.#runTransforms(head, wrappers));
      if (result !== undefined) wrappers.unshift(result);
    }
    return undefined;
  }

  #send(head: ResponseHead, wrappers: readonly BodyWrapper[]): Writable {
    this.dropWithheld(head.headers);
    const body = this.send(head, wrappers);
    this.#status = head.status;
    return body;
  }

  /** Passes the trailer fields to their readers, once, and removes the withheld ones. */
  #end(body: Writable, trailers: HeaderList): void {
    if (!trailers.isEmpty) {
      const readers = this.#trailerReaders;
      this.#trailerReaders = null;
      if (readers !== null) for (const read of readers) read(trailers);
      this.dropWithheld(trailers);
    }
    this.finish(body, trailers);
  }
}

/** A GET request of the gateway itself. It has no body, and ends early only if it is abandoned. */
export abstract class GatewayRequest extends ExchangeResponse {
  method = 'GET';
  readonly originalMethod = 'GET';
  body: Readable = Readable.from([]);
  readonly hasBody = false;
  readonly isBodyWhole = false;
  readonly isBodyLent = false;
  readonly upgrade = null;
  readonly #disconnect = new DisconnectSignal();

  get abandoned(): boolean {
    return this.#disconnect.isOver;
  }

  get signal(): AbortSignal {
    return this.#disconnect.signal;
  }

  /** Nobody wants the response any longer. */
  abandon(): void {
    this.#disconnect.trigger();
  }

  onAbandoned(listener: () => void): () => void {
    return this.#disconnect.add(listener);
  }

  lendBody(): null {
    return null;
  }

  discardBody(): void {}

  trailers(): HeaderList {
    return new HeaderList();
  }

  protected prepare(): void {}
}

/** Most lists have one or two entries. A `push` to an empty array, or a spread, would make room for 17. */
function added<T>(list: readonly T[] | null, entry: T): T[] {
  return list === null ? [entry] : list.concat([entry]);
}

/** Puts the wrappers around a body, the first one innermost. */
export function wrapped(body: Writable, wrappers: readonly BodyWrapper[]): Writable {
  let outermost = body;
  for (const wrap of wrappers) outermost = wrap(outermost);
  return outermost;
}

/**
 * Corrects the head of a response to HEAD where the request of the client was not HEAD: another directive has changed
 * the method, and the client would wait for the content that the length declares (RFC 9110 §8.6).
 */
function frameAsEmpty(originalMethod: string, { status, headers }: ResponseHead): void {
  const length = headers.get('content-length');
  const isFramed = originalMethod === 'HEAD' || status === 204 || status === 304;
  if (isFramed || length === undefined || length === '0') return;
  headers.set('content-length', '0');
  // No decoder accepts an empty content.
  headers.delete('content-encoding');
}

/** Changes the status of a response. The length of a 204 or a 304 is not that of its body (RFC 9110 §8.6). */
export function replaceStatus(head: ResponseHead, status: number): void {
  if (head.status === 204 || head.status === 304) head.headers.delete('content-length');
  head.status = status;
}

/** Whether a response has no content (RFC 9110 §15). Corrects the length in its head. */
export function isBodyless(method: string, { status, headers }: ResponseHead): boolean {
  switch (status) {
    case 204:
      // RFC 9110 §8.6 allows this for HEAD and 304, but not for 204.
      headers.delete('content-length');
      return true;
    case 205:
      headers.set('content-length', '0');
      return true;
    case 304:
      return true;
    default:
      return method === 'HEAD';
  }
}

/** Notes whether a handler responds from now on, also if an interceptor takes that response. */
export class ResponseWatch {
  hasBegun = false;
  readonly stop: () => void;

  /** @param onBegin called before the head of the response is sent or stored */
  constructor(exchange: Pick<Exchange, 'interceptHead'>, onBegin: () => void = () => {}) {
    this.stop = exchange.interceptHead(() => {
      this.hasBegun = true;
      onBegin();
      return null;
    });
  }
}

/** A {@link ResponseStream} over any body: an encoded, a delayed or a discarded one. */
export class WritableStream implements ResponseStream {
  readonly framing = 'plain';
  readonly #body: Writable;
  readonly #exchange: Pick<Exchange, 'signal' | 'abort'>;
  #closed = false;

  /** `exchange` reports when the client leaves, which such a body may not notice. */
  constructor(body: Writable, exchange: Pick<Exchange, 'signal' | 'abort'>) {
    this.#body = body;
    this.#exchange = exchange;
  }

  write(framed: Buffer): boolean {
    return this.#closed || this.#body.writableEnded || this.#body.write(framed);
  }

  get bufferedBytes(): number {
    return this.#body.writableLength;
  }

  listen(listener: StreamListener): void {
    const body = this.#body;
    const { signal } = this.#exchange;
    const onClose = (): void => {
      if (this.#closed) return;
      this.#closed = true;
      signal.removeEventListener('abort', onClose);
      listener.closed();
    };
    body.on('drain', () => {
      if (!this.#closed) listener.drained();
    });
    body.once('close', onClose);
    signal.addEventListener('abort', onClose);
    if (signal.aborted || body.closed || body.destroyed) queueMicrotask(onClose);
  }

  end(): void {
    if (!this.#body.writableEnded) this.#body.end();
  }

  destroy(): void {
    if (!this.#closed) this.#exchange.abort(this.#body);
  }
}
