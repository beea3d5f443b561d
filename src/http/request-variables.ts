// What the variables of a request contain besides text that a handler has set: values that are found when they are
// asked for, and the error of an error route.

import type { Exchange, ResponseHead } from './exchange.ts';

/** The value of a placeholder of `map`, which sees what later handlers have changed. */
type LateValue = (exchange: Exchange) => string;

const STATUS = 'err.status_code';

const lateValues = new WeakMap<Exchange['variables'], Map<string, LateValue>>();

/** Sets how the value of a placeholder is found. The first handler that sets it has the last word. */
export function setLateValue({ variables }: Exchange, name: string, value: LateValue): void {
  let values = lateValues.get(variables);
  if (values === undefined) {
    values = new Map();
    lateValues.set(variables, values);
  }
  if (!values.has(name)) values.set(name, value);
}

/** The value of a placeholder for the request as it is now; undefined if no handler has set it. */
export function lateValueOf(name: string, exchange: Exchange): string | undefined {
  return lateValues.get(exchange.variables)?.get(name)?.(exchange);
}

/** A copy of the variables of a request, with its late values. */
export function copiedVariables({ variables }: Exchange): Map<string, string> {
  const copy = new Map(variables);
  const values = lateValues.get(variables);
  if (values !== undefined) lateValues.set(copy, new Map(values));
  return copy;
}

/** In an error route, the status of the error; otherwise 0. */
export function errorStatus({ variables }: Exchange): number {
  return Number(variables.get(STATUS) ?? 0);
}

/**
 * The status that says whether a request has succeeded. The response of an error route, which may be a 200, does not: there
 * it is the status of the error.
 */
export function outcomeStatus(
  exchange: Exchange,
  { status }: Pick<ResponseHead, 'status'>,
): number {
  return errorStatus(exchange) || status;
}

/** Records the status of the error for the routes that run because of it. */
export function setErrorStatus({ variables }: Exchange, status: number): void {
  variables.set(STATUS, String(status));
}

/**
 * Records the details of an error for error routes, in addition to its status.
 *
 * @param message the text for clients; empty if there is none
 */
export function describeError({ variables, id }: Exchange, phrase: string, message: string): void {
  variables.set('err.status_text', phrase);
  variables.set('err.id', id);
  variables.set('err.message', message);
}
