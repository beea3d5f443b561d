import type { RequestMatcher } from '../config/routes.ts';
import { list, object } from '../config/shape.ts';
import { text } from '../config/shape-values.ts';
import { messageOf } from '../kernel/error.ts';
import { orNull } from '../kernel/parse.ts';
import { allHold, negated } from '../site/text-pattern.ts';
import { parseExpression } from './expression/program.ts';
import type { Matcher } from './matcher.ts';

export interface NotCondition {
  readonly kind: 'not';
  readonly matchers: readonly RequestMatcher[];
}

export const not: Matcher<NotCondition> = {
  data: {
    shape: (inner) => object({ matchers: list(inner, { min: 1 }) }),
    nested: ({ matchers }) => matchers,
  },
  syntax: {
    usage: 'not <condition>\nnot { <conditions…> }',
    summary: 'requests that do not match the condition or block',
    read: (cursor, nested) => [{ kind: 'not', matchers: [nested(cursor)] }],
  },
  compile({ matchers }, compileMatcher) {
    const absent = matchers.map((matcher) => negated(compileMatcher(matcher)));
    return (exchange) => allHold(absent, exchange);
  },
};

export interface ExpressionCondition {
  readonly kind: 'expression';
  /** A CEL expression with placeholders. */
  readonly expression: string;
}

function isExpression(text: string): boolean {
  return orNull(() => parseExpression(text)) !== null;
}

export const expression: Matcher<ExpressionCondition> = {
  data: {
    shape: () => object({ expression: text('an expression of CEL', isExpression) }),
    nested: ({ expression }) =>
      [...parseExpression(expression).conditions.values()].map((condition) => [condition]),
  },
  syntax: {
    usage: 'expression <CEL>',
    summary: 'an expression of CEL with placeholders and the other matchers as functions',
    read(cursor) {
      const words = cursor.several('an expression');
      const [first] = words;
      // The Hubfile parser has removed the quotes of single words; CEL's quotes are inside of them.
      const expression = words
        .map((word) => (word.plain || words.length === 1 ? word.text : JSON.stringify(word.text)))
        .join(' ');
      try {
        parseExpression(expression);
      } catch (error) {
        const hint = 'a whole expression stands best between two ` marks';
        cursor.fail(first?.span ?? cursor.span, 'invalid-expression', messageOf(error), hint);
      }
      return [{ kind: 'expression', expression }];
    },
  },
  compile({ expression }, compileMatcher) {
    const { conditions, holds } = parseExpression(expression);
    const predicates = new Map(
      [...conditions].map(([call, condition]) => [call, compileMatcher([condition])] as const),
    );
    return (exchange) => holds(exchange, predicates);
  },
};
