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

  /** `copy` was written where `before` was, but for a field. */
  change(copy: object, before: object, field: string, at: Span): void {
    const known = this.#origins.get(before);
    const fields = new Map([...(known?.fields ?? []), [field, at] as const]);
    this.#origins.set(copy, { span: known?.span ?? at, fields });
  }

  /**
   * What was not marked itself was written where the object is that holds it. What several hold is
   * a default, or stands for itself, and is left alone.
   */
  inherit(root: object): void {
    const found = new Map<object, Span | null>();
    this.#descend(root, found);
    for (const [part, span] of found) {
      if (span !== null && !this.#origins.has(part)) this.mark(part, span);
    }
  }

  #descend(part: object, found: Map<object, Span | null>): void {
    for (const [name, value] of Object.entries(part)) {
      if (typeof value !== 'object' || value === null) continue;
      const before = found.get(value);
      const isMarked = this.#origins.has(value);
      if (before === null || (before !== undefined && isMarked)) continue;
      const span = this.find(value) ?? this.find(part, name) ?? found.get(part) ?? null;
      found.set(value, before === undefined ? span : null);
      this.#descend(value, found);
    }
  }

  find(about: object, field?: string): Span | undefined {
    const origin = this.#origins.get(about);
    const own = field === undefined ? undefined : origin?.fields.get(field);
    return own ?? origin?.span;
  }
}
