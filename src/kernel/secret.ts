import { inspect } from 'node:util';

const REDACTED = '[redacted]';
const PLACEHOLDERS_ONLY = /^(?:\{(?:env|file)\.[^{}]+\})+$/;

/**
 * A value that must not be printed. It travels through configuration, logs and errors as
 * `[redacted]`; a value made of placeholders alone (`{env.JWT_KEY}`) discloses nothing and prints
 * as it was written.
 */
export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** The value itself. Call it where the value is used, never where it is passed along. */
  reveal(): string {
    return this.#value;
  }

  toString(): string {
    return PLACEHOLDERS_ONLY.test(this.#value) ? this.#value : REDACTED;
  }

  toJSON(): string {
    return this.toString();
  }

  [inspect.custom](): string {
    return this.toString();
  }
}
