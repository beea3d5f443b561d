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

/** Tells the error routes what they may show of an error; what nobody said so is for the log alone. */
export function setErrorMessage({ variables }: Exchange, message: string): void {
  if (message === '') variables.delete(MESSAGE);
  else variables.set(MESSAGE, message);
}

/** What an error route may say of its error, beside its status. */
export function describeError({ variables, id }: Exchange, phrase: string): void {
  variables.set('err.status_text', phrase);
  variables.set('err.id', id);
  if (!variables.has(MESSAGE)) variables.set(MESSAGE, '');
}
