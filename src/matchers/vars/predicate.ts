import { expandPlaceholders, variableKey } from '../../site/placeholders.ts';
import type { Predicate } from '../../site/predicate.ts';
import type { VarsCondition } from './data.ts';

/** A variable that is not set is empty. */
export function vars({ variable, values }: VarsCondition): Predicate {
  const key = variableKey(variable);
  return (exchange) => {
    const value = variable.includes('{')
      ? expandPlaceholders(variable, exchange)
      : (exchange.variables.get(key) ?? '');
    return values.some((wanted) => expandPlaceholders(wanted, exchange) === value);
  };
}
