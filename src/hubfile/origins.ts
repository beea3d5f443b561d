import type { Span } from './place.ts';

interface Origin {
  readonly span: Span;
  readonly fields: ReadonlyMap<string, Span>;
}

/** Remembers where each object of a configuration was written, and each field of it. */
export class Origins {
  readonly #origins = new WeakMap<object, Origin>();

  mark(about: object, span: Span, fields: ReadonlyMap<string, Span> = new Map()): void {
    this.#origins.set(about, { span, fields });
  }

  /** Marks and gives back an object. */
  of<Part extends object>(span: Span, about: Part): Part {
    this.mark(about, span);
    return about;
  }

  /** `copy` was written where `about` was. */
  follow(copy: object, about: object): void {
    const origin = this.#origins.get(about);
    if (origin !== undefined) this.#origins.set(copy, origin);
  }

  find(about: object, field?: string): Span | undefined {
    const origin = this.#origins.get(about);
    const own = field === undefined ? undefined : origin?.fields.get(field);
    return own ?? origin?.span;
  }
}
