import { list as listShape, object, type Of, optional } from '../config/shape.ts';
import { name as nameShape, text } from '../config/shape-values.ts';
import { isStatusPattern, statusMatcher } from '../config/well-formed.ts';
import { name, statusClasses, texts } from '../hubfile/values.ts';
import type { Exchange } from '../http/exchange.ts';
import { errorStatus as statusOf } from '../http/request-variables.ts';
import { expandForMatcher, variableKey } from '../site/placeholders.ts';
import { capturing } from '../site/text-pattern.ts';
import { type ListCondition, listOf, type Matcher, withRegexp } from './matcher.ts';

export interface VarsCondition {
  readonly kind: 'vars';
  /** The name of a variable, or a text with placeholders. */
  readonly variable: string;
  /** Texts with placeholders. */
  readonly values: readonly string[];
}

export const vars: Matcher<VarsCondition> = {
  data: {
    shape: () =>
      object({
        variable: nameShape('a variable or a placeholder'),
        values: listShape(text('a value'), { min: 1 }),
      }),
  },
  syntax: {
    usage: 'vars <name>|<placeholder> <value…>',
    summary: 'a variable (set by `vars`) or a placeholder that has one of these values',
    read(cursor) {
      const variable = name(cursor, 'a variable or a placeholder');
      return [{ kind: 'vars', variable, values: texts(cursor, 'a value') }];
    },
    merge: (a, b) =>
      a.variable === b.variable ? { ...a, values: [...a.values, ...b.values] } : null,
  },
  compile({ variable, values }) {
    const valueOf = readerOf(variable);
    return (exchange) => {
      const value = valueOf(exchange);
      return values.some((wanted) => expandForMatcher(wanted, exchange) === value);
    };
  },
};

const regexpMembers = {
  /** Groups become `{re.NAME.1}`; null: `{re.1}`. */
  name: optional(text('a name')),
  /** The name of a variable, or a text with placeholders. */
  variable: nameShape('a variable or a placeholder'),
  pattern: text('a regular expression'),
};

export interface VarsRegexpCondition extends Of<typeof regexpMembers> {
  readonly kind: 'vars_regexp';
}

export const varsRegexp: Matcher<VarsRegexpCondition> = {
  data: { shape: () => object(regexpMembers) },
  syntax: {
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
      const regexp = [...words.slice(0, -2), pattern];
      return [withRegexp(cursor, 'vars_regexp', regexp, { variable: variable.text })];
    },
  },
  compile({ name, variable, pattern }) {
    const capture = capturing(pattern, name, true);
    const valueOf = readerOf(variable);
    return (exchange) => capture(valueOf(exchange), exchange);
  },
};

export const errorStatus: Matcher<ListCondition<'error_status', 'statuses'>> = listOf(
  'error_status',
  'statuses',
  {
    item: text('a status such as 404 or 5xx', isStatusPattern),
    usage: 'error_status 404 5xx',
    summary: 'these statuses of the error (in `handle_errors`)',
    read: statusClasses,
    /** Outside of error routes there is no error, and nothing matches. */
    compile(statuses) {
      const matches = statusMatcher(statuses);
      return (exchange) => matches(statusOf(exchange));
    },
  },
);

/** Reads a variable, which is empty if it is not set, or a text with placeholders. */
function readerOf(variable: string): (exchange: Exchange) => string {
  const key = variableKey(variable);
  return (exchange) => {
    // Whatever set it may have looked at who asks.
    exchange.dependsOn?.('client');
    return variable.includes('{')
      ? expandForMatcher(variable, exchange)
      : (exchange.variables.get(key) ?? '');
  };
}
