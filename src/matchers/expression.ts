import type { ConditionData } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { text } from '../config/shape-values.ts';
import type { ConditionSyntax } from '../hubfile/scope.ts';
import { messageOf } from '../kernel/error.ts';
import type { CompileMatcher, Predicate } from '../site/text-pattern.ts';
import { parseExpression } from './expression/program.ts';
import type { Matcher } from './matcher.ts';

export interface ExpressionCondition {
  readonly kind: 'expression';
  /** A CEL expression with placeholders. */
  readonly expression: string;
}

function isExpression(text: string): boolean {
  try {
    parseExpression(text);
    return true;
  } catch {
    return false;
  }
}

const data: ConditionData<ExpressionCondition> = {
  shape: () => object({ expression: text('an expression of CEL', isExpression) }),
  nested: ({ expression }) =>
    [...parseExpression(expression).conditions.values()].map((condition) => [condition]),
};

const syntax: ConditionSyntax<ExpressionCondition> = {
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
};

function compile({ expression }: ExpressionCondition, compileMatcher: CompileMatcher): Predicate {
  const { conditions, holds } = parseExpression(expression);
  const predicates = new Map(
    [...conditions].map(([call, condition]) => [call, compileMatcher([condition])] as const),
  );
  return (exchange) => holds(exchange, predicates);
}

export const expression: Matcher<ExpressionCondition> = { data, syntax, compile };
