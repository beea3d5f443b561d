import type { ConditionData } from '../config/routes.ts';
import { list as listShape, object } from '../config/shape.ts';
import { name as nameShape, text } from '../config/shape-values.ts';
import type { ConditionSyntax } from '../hubfile/scope.ts';
import { list, name } from '../hubfile/values.ts';
import { expandPlaceholders, variableKey } from '../site/placeholders.ts';
import type { Predicate } from '../site/text-pattern.ts';
import type { Matcher } from './matcher.ts';

export interface VarsCondition {
  readonly kind: 'vars';
  /** The name of a variable, or a text with placeholders. */
  readonly variable: string;
  /** Texts with placeholders. */
  readonly values: readonly string[];
}

const data: ConditionData<VarsCondition> = {
  shape: () =>
    object({
      variable: nameShape('a variable or a placeholder'),
      values: listShape(text('a value'), { min: 1 }),
    }),
};

const syntax: ConditionSyntax<VarsCondition> = {
  usage: 'vars <name>|<placeholder> <value…>',
  summary: 'a variable (set by `vars`) or a placeholder that has one of these values',
  read(cursor) {
    const variable = name(cursor, 'a variable or a placeholder');
    return [{ kind: 'vars', variable, values: list(cursor, 'a value') }];
  },
  merge: (a, b) =>
    a.variable === b.variable ? { ...a, values: [...a.values, ...b.values] } : null,
};

/** A variable that is not set is empty. */
function compile({ variable, values }: VarsCondition): Predicate {
  const key = variableKey(variable);
  return (exchange) => {
    // Whatever set it may have looked at who asks.
    exchange.dependsOn?.('client');
    const value = variable.includes('{')
      ? expandPlaceholders(variable, exchange)
      : (exchange.variables.get(key) ?? '');
    return values.some((wanted) => expandPlaceholders(wanted, exchange) === value);
  };
}

export const vars: Matcher<VarsCondition> = { data, syntax, compile };
