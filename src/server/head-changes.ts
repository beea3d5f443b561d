import type { BodyWrapper, HeadTransform, ResponseHead } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';

/** What handlers want changed in the heads of one exchange. */
export class HeadChanges {
  readonly #transforms: HeadTransform[] = [];
  readonly #withheld: string[] = [];

  add(transform: HeadTransform): void {
    this.#transforms.push(transform);
  }

  withhold(name: string): void {
    this.#withheld.push(name);
  }

  /** Removes what is withheld. */
  drop(headers: HeaderList): void {
    for (const name of this.#withheld) headers.delete(name);
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
