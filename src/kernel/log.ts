import type { Clock } from './clock.ts';
import { ignore } from './error.ts';

/** Further data of a log line. Values are printed as JSON. */
export type LogFields = Readonly<Record<string, unknown>>;

/**
 * The log for the operator. Data from clients must not be in `message`; put it into `fields`, where it is
 * escaped. Secrets must be in neither.
 */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** A logger that adds `fields` to each of its lines. */
  child(fields: LogFields): Logger;
}

/** A logger that writes nothing: the default of the library's entry points. */
export const silentLogger: Logger = {
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  child: () => silentLogger,
};

/** The occurrences that are logged of what may happen very often. */
export function isPowerOfTwo(count: number): boolean {
  return Number.isInteger(Math.log2(count));
}

/** Milliseconds without a failure after which the next one is logged as the first one. */
const QUIET_MS = 60_000;

/** Logs the first failure, and then with the count the second, fourth, eighth …, whoever meets it. */
export class FailureLog {
  readonly #message: string;
  readonly #level: 'warn' | 'error';
  readonly #clock: Clock;
  #count = 0;
  #lastMs = -Infinity;

  constructor(message: string, level: 'warn' | 'error', clock: Clock) {
    this.#message = message;
    this.#level = level;
    this.#clock = clock;
  }

  write(log: Logger, fields: LogFields): void {
    const now = this.#clock.monotonic();
    this.#count = now - this.#lastMs < QUIET_MS ? this.#count + 1 : 1;
    this.#lastMs = now;
    const level = isPowerOfTwo(this.#count) ? this.#level : 'debug';
    const times = this.#count > 1 ? { times: this.#count } : {};
    log[level](this.#message, { ...times, ...fields });
  }
}
