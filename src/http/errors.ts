import { STATUS_CODES } from 'node:http';
import { HubgateError } from '../kernel/error.ts';

/**
 * An error with the status that answers it. The client sees the status's own phrase, or `shown` where the
 * configuration gives a text for clients. It never sees `message`: that is for the log.
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

/** The phrase of a status: `Bad Gateway`. */
export function reasonPhrase(status: number): string {
  return STATUS_CODES[status] ?? 'Unknown';
}
