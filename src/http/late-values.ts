// Placeholders whose value is found when it is asked for, not when a handler has set them: those of `map`,
// which see what later handlers have changed. They belong to the variables of a request.

import type { Exchange } from './exchange.ts';

type LateValue = (exchange: Exchange) => string;

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
