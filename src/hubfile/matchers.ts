import type { MatchCondition, RequestMatcher } from '../config/config.ts';
import { nearestName } from '../config/nearest.ts';
import { conditions as syntaxes } from '../matchers/syntaxes.ts';
import { unsupportedConditions } from '../matchers/unsupported.ts';
import type { ConditionSyntax } from './condition-syntax.ts';
import type { Cursor } from './cursor.ts';

const CONDITIONS: Readonly<Record<string, ConditionSyntax<MatchCondition>>> = syntaxes;

/** One condition of a matcher; what it says twice in one line counts as "any of". */
export function conditionOf(
  cursor: Cursor,
  nested: (cursor: Cursor) => RequestMatcher,
): MatchCondition[] {
  const syntax = Object.hasOwn(CONDITIONS, cursor.name) ? CONDITIONS[cursor.name] : undefined;
  if (syntax !== undefined) return syntax.read(cursor, nested);
  if (Object.hasOwn(unsupportedConditions, cursor.name)) {
    const message = `the condition ${cursor.name} is not supported by hubgate`;
    const hint = unsupportedConditions[cursor.name];
    return cursor.fail(cursor.span, 'unsupported-matcher', message, hint);
  }
  const near = nearestName(cursor.name, Object.keys(CONDITIONS));
  const hint =
    near === undefined
      ? `known are ${Object.keys(CONDITIONS).join(', ')}`
      : `did you mean \`${near}\`?`;
  return cursor.fail(cursor.span, 'unknown-condition', `unknown condition "${cursor.name}"`, hint);
}

/** Conditions of one kind (and field) that are given several times are one: any of their values. */
export function mergeConditions(conditions: readonly MatchCondition[]): MatchCondition[] {
  const merged: MatchCondition[] = [];
  for (const condition of conditions) {
    const index = merged.findIndex((known) => mergeTwo(known, condition) !== null);
    const known = merged[index];
    const both = known === undefined ? null : mergeTwo(known, condition);
    if (both === null) merged.push(condition);
    else merged[index] = both;
  }
  return merged;
}

function mergeTwo(a: MatchCondition, b: MatchCondition): MatchCondition | null {
  return a.kind === b.kind ? (CONDITIONS[a.kind]?.merge?.(a, b) ?? null) : null;
}
