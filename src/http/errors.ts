import { STATUS_CODES } from 'node:http';
import { HubgateError } from '../kernel/error.ts';

/**
 * An error with the status of its response. The client sees the standard phrase of the status, or `shown` if
 * the configuration has a text for clients. It never sees `message`, which is for the log.
 */
export class HttpError extends HubgateError {
  readonly status: number;
  readonly shown: string | null;

  constructor(status: number, message: string, options: { cause?: unknown; shown?: string } = {}) {
    super(`http-${status}`, message, 'cause' in options ? { cause: options.cause } : {});
    this.name = 'HttpError';
    this.status = status;
    this.shown = options.shown || null;
  }
}

/** The phrase of a status, for example `Bad Gateway`. */
export function reasonPhrase(status: number): string {
  return STATUS_CODES[status] ?? 'Unknown';
}
