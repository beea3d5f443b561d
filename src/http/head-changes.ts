// A transform of a head can return a promise, for instance while it requests a token. Data that is written in
// the meantime is held back, up to the stream's high-water mark.

import type { BodyWrapper, HeadInterceptor, HeadTransform, ResponseHead } from './exchange.ts';
import { HeaderList } from './header-list.ts';
import { Writable } from 'node:stream';

type TrailerReader = (trailers: HeaderList) => void;

/**
 * The changes to the heads of one exchange that handlers have registered, and the handlers that can take a
 * response instead of the client. Most exchanges have few.
 */
export class HeadChanges {
  readonly #transforms: HeadTransform[] = [];
  #withheld: string[] | null = null;
  #trailerReaders: TrailerReader[] | null = null;
  #interceptors: HeadInterceptor[] | null = null;
  #taken: Writable | null = null;

  add(transform: HeadTransform): void {
    this.#transforms.push(transform);
  }

  withhold(name: string): void {
    this.#withheld ??= [];
    this.#withheld.push(name);
  }

  addTrailerReader(read: TrailerReader): void {
    this.#trailerReaders ??= [];
    this.#trailerReaders.push(read);
  }

  addInterceptor(look: HeadInterceptor): void {
    this.#interceptors ??= [];
    this.#interceptors.push(look);
  }

  /** Returns whether a response had been taken; it counts as never sent from now on. */
  removeInterceptor(look: HeadInterceptor): boolean {
    this.#interceptors = this.#interceptors?.filter((one) => one !== look) ?? null;
    const hadTaken = this.#taken !== null;
    this.#taken = null;
    return hadTaken;
  }

  /** Offers a head to the interceptors, the last one first. Returns the body of the one that takes it. */
  intercept(head: ResponseHead): Writable | null {
    if (this.#interceptors === null) return null;
    for (const look of this.#interceptors.toReversed()) {
      this.#taken = look(head);
      if (this.#taken !== null) break;
    }
    return this.#taken;
  }

  /** The body of the response that an interceptor has taken; null if there is none. */
  get taken(): Writable | null {
    return this.#taken;
  }

  /** Passes the trailer fields to their readers, once, and removes the withheld fields. */
  applyTrailers(trailers: HeaderList): void {
    if (trailers.isEmpty) return;
    const readers = this.#trailerReaders;
    this.#trailerReaders = null;
    if (readers !== null) for (const read of readers) read(trailers);
    this.drop(trailers);
  }

  /** Removes the withheld fields. */
  drop(headers: HeaderList): void {
    if (this.#withheld !== null) for (const name of this.#withheld) headers.delete(name);
  }

  /**
   * Runs the transforms, each once even if one throws, and collects the wrappers, innermost first. If a
   * transform returns a promise, the others run when it has resolved.
   */
  apply(head: ResponseHead, wrappers: BodyWrapper[]): Promise<void> | undefined {
    for (let next = this.#transforms.pop(); next !== undefined; next = this.#transforms.pop()) {
      const result = next(head);
      if (result instanceof Promise) return result.then(() => this.apply(head, wrappers));
      if (result !== undefined) wrappers.unshift(result);
    }
    return undefined;
  }
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

/** Returns a stream that discards a body, and that ends the real body when it ends. */
export function discarding(body: Writable): Writable {
  return new Writable({
    write: (_chunk, _encoding, done) => done(),
    final: (done) => {
      if (!body.writableEnded) body.end();
      done();
    },
  });
}

export interface DeferredBodyOptions {
  /** Sends the head, and resolves to the stream for the body. */
  readonly begin: () => Promise<Writable>;
  readonly end: (body: Writable, trailers: HeaderList) => void;
  /** Called if the head could not be sent. */
  readonly fail: (error: unknown) => void;
}

/** The body of a response while its head is still being prepared. */
export class DeferredBody {
  readonly body: Writable;
  #trailers = new HeaderList();

  constructor({ begin, end, fail }: DeferredBodyOptions) {
    let sent: Writable | undefined;
    this.body = new Writable({
      construct: (ready) => {
        begin().then(
          (body) => {
            sent = body;
            ready();
          },
          (error: unknown) => {
            fail(error);
            ready();
          },
        );
      },
      // The exchange's signal reports a client that reads no further.
      write: (chunk: Buffer, _encoding, done) => {
        if (sent === undefined) done();
        else sent.write(chunk, () => done());
      },
      final: (done) => {
        if (sent !== undefined) end(sent, this.#trailers);
        done();
      },
    });
  }

  end(trailers: HeaderList): void {
    this.#trailers = trailers;
    this.body.end();
  }
}
