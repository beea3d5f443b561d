import type { Exchange } from '../http/exchange.ts';

const VARIABLE = 'err.status_code';
const MESSAGE = 'err.message';

/** In an error route, the status of the error; otherwise 0. */
export function errorStatus({ variables }: Exchange): number {
  return Number(variables.get(VARIABLE) ?? 0);
}

/** Records the status of the error for the routes that run because of it. */
export function setErrorStatus({ variables }: Exchange, status: number): void {
  variables.set(VARIABLE, String(status));
}

/**
 * Records the details of an error for error routes, in addition to its status.
 *
 * @param message the text for clients; empty if there is none
 */
export function describeError({ variables, id }: Exchange, phrase: string, message: string): void {
  variables.set('err.status_text', phrase);
  variables.set('err.id', id);
  variables.set(MESSAGE, message);
}
