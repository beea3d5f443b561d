import type { Exchange } from '../http/exchange.ts';

const VARIABLE = 'err.status_code';

/** In an error route the status that it makes the page of; else 0. */
export function errorStatus({ variables }: Exchange): number {
  return Number(variables.get(VARIABLE) ?? 0);
}

/** Tells the routes below which error they are run for. */
export function setErrorStatus({ variables }: Exchange, status: number): void {
  variables.set(VARIABLE, String(status));
}
