// A transform of a head may return a promise, for instance while a token is requested. Whatever is
// written meanwhile is held back, bounded by the stream's high-water mark.

import type { BodyWrapper, HeadTransform, ResponseHead } from './exchange.ts';
import { HeaderList } from './header-list.ts';
import { Writable } from 'node:stream';

type TrailerReader = (trailers: HeaderList) => void;

/** What handlers want changed in the heads of one exchange; most want little. */
export class HeadChanges {
  readonly #transforms: HeadTransform[] = [];
  #withheld: string[] | null = null;
  #trailerReaders: TrailerReader[] | null = null;

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

  /** Shows the trailer fields to those who read them, once, and removes what is withheld. */
  applyTrailers(trailers: HeaderList): void {
    if (trailers.isEmpty) return;
    const readers = this.#trailerReaders;
    this.#trailerReaders = null;
    if (readers !== null) for (const read of readers) read(trailers);
    this.drop(trailers);
  }

  /** Removes what is withheld. */
  drop(headers: HeaderList): void {
    if (this.#withheld !== null) for (const name of this.#withheld) headers.delete(name);
  }

  /**
   * Runs the transforms, once even when one throws, and collects the wrappers, innermost first.
   * After one that waits the others run when it is done.
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

/** Whether a response has no content (RFC 9110 §15); puts the length right that its head gives. */
export function isBodyless(method: string, { status, headers }: ResponseHead): boolean {
  switch (status) {
    case 204:
      // RFC 9110 §8.6: what is lawful for HEAD and 304 is not for 204.
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

/** Takes a body that is not to be sent, and ends with it. */
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
  /** Sends the head, and resolves to where the body goes. */
  readonly begin: () => Promise<Writable>;
  readonly end: (body: Writable, trailers: HeaderList) => void;
  /** The head could not be sent. */
  readonly fail: (error: unknown) => void;
}

/** Where a body is written whose head still waits. */
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
      // What the client does not take any more is told by the exchange's signal.
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
