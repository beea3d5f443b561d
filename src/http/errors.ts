import { STATUS_CODES } from 'node:http';
import { HubgateError } from '../kernel/error.ts';

/**
 * An error with the status that answers it. The client sees the status's own phrase, never
 * `message`: that is for the log.
 */
export class HttpError extends HubgateError {
  readonly status: number;

  constructor(status: number, message: string, options?: { cause?: unknown }) {
    super(`http-${status}`, message, options);
    this.name = 'HttpError';
    this.status = status;
  }
}

/** The phrase of a status: `Bad Gateway`. */
export function reasonPhrase(status: number): string {
  return STATUS_CODES[status] ?? 'Unknown';
}
