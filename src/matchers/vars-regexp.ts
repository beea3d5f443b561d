import type { ConditionData } from '../config/routes.ts';
import { nullable, object } from '../config/shape.ts';
import { name, text } from '../config/shape-values.ts';
import type { ConditionSyntax } from '../hubfile/scope.ts';
import { capturing, type Predicate } from '../site/text-pattern.ts';
import { expandPlaceholders, variableKey } from '../site/placeholders.ts';
import type { Matcher } from './matcher.ts';

export interface VarsRegexpCondition {
  readonly kind: 'vars_regexp';
  /** Groups become `{re.NAME.1}`; null: `{re.1}`. */
  readonly name: string | null;
  /** The name of a variable, or a text with placeholders. */
  readonly variable: string;
  readonly pattern: string;
}

const data: ConditionData<VarsRegexpCondition> = {
  shape: () =>
    object(
      {
        name: nullable(text('a name')),
        variable: name('a variable or a placeholder'),
        pattern: text('a regular expression'),
      },
      { name: null },
    ),
};

const syntax: ConditionSyntax<VarsRegexpCondition> = {
  usage: 'vars_regexp [<name>] <name>|<placeholder> <regexp>',
  summary: 'a variable or a placeholder that matches (RE2 syntax)',
  read(cursor) {
    const words = cursor.several('a variable or a placeholder, and a regular expression');
    const [variable, pattern] = words.slice(-2);
    if (words.length < 2 || words.length > 3 || variable === undefined || pattern === undefined) {
      const message =
        'vars_regexp takes a variable and a regular expression, with an optional name before them';
      return cursor.fail(cursor.span, 'expected-argument', message);
    }
    const condition: VarsRegexpCondition = {
      kind: 'vars_regexp',
      name: words.length === 3 ? (words[0]?.text ?? null) : null,
      variable: variable.text,
      pattern: pattern.text,
    };
    cursor.origins.mark(condition, cursor.span, new Map([['pattern', pattern.span]]));
    return [condition];
  },
};

/** A variable that is not set is empty. */
function compile({ name, variable, pattern }: VarsRegexpCondition): Predicate {
  const capture = capturing(pattern, name, true);
  const key = variableKey(variable);
  return (exchange) => {
    // Whatever set it may have looked at who asks.
    exchange.dependsOn?.('client');
    const value = variable.includes('{')
      ? expandPlaceholders(variable, exchange)
      : (exchange.variables.get(key) ?? '');
    return capture(value, exchange);
  };
}

export const varsRegexp: Matcher<VarsRegexpCondition> = { data, syntax, compile };
