import type { Exchange } from '../http/exchange.ts';

const VARIABLE = 'err.status_code';
const MESSAGE = 'err.message';

/** In an error route the status that it makes the page of; else 0. */
export function errorStatus({ variables }: Exchange): number {
  return Number(variables.get(VARIABLE) ?? 0);
}

/** Tells the routes below which error they are run for. */
export function setErrorStatus({ variables }: Exchange, status: number): void {
  variables.set(VARIABLE, String(status));
}

/**
 * What an error route may say of its error, beside its status.
 *
 * @param message the text for clients; empty if there is none
 */
export function describeError({ variables, id }: Exchange, phrase: string, message: string): void {
  variables.set('err.status_text', phrase);
  variables.set('err.id', id);
  variables.set(MESSAGE, message);
}
