// A transform of a head may return a promise, for instance while a token is requested. Whatever is
// written meanwhile is held back, bounded by the stream's high-water mark.

import type { BodyWrapper, HeadTransform, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';

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
