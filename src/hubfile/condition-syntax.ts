import type { MatchCondition, RequestMatcher } from '../config/config.ts';
import type { Cursor } from './cursor.ts';

/** How one kind of condition is written. */
export interface ConditionSyntax<Condition extends { readonly kind: string }> {
  /** What it takes, for the documents and the editor; a line for each form. */
  readonly usage: string;
  /** What it holds for, in a few words of Markdown. */
  readonly summary: string;
  /** What one line says, several conditions if all of them must hold. */
  read(cursor: Cursor, nested: (cursor: Cursor) => RequestMatcher): MatchCondition[];
  /** Two of one kind as one that holds for either; null if each must hold. */
  merge?(a: Condition, b: Condition): Condition | null;
}
