import { capturing } from '../../site/capture.ts';
import { expandPlaceholders, variableKey } from '../../site/placeholders.ts';
import type { Predicate } from '../../site/predicate.ts';
import type { VarsRegexpCondition } from './data.ts';

/** A variable that is not set is empty. */
export function varsRegexp({ name, variable, pattern }: VarsRegexpCondition): Predicate {
  const capture = capturing(pattern, name);
  const key = variableKey(variable);
  return (exchange) => {
    const value = variable.includes('{')
      ? expandPlaceholders(variable, exchange)
      : (exchange.variables.get(key) ?? '');
    return capture(value, exchange);
  };
}
