import type { ConditionData } from '../config/routes.ts';
import type { ConditionSyntax } from '../hubfile/scope.ts';
import type { CompileCondition } from '../site/matchers.ts';

/** One kind of condition that matchers are made of. */
export interface Matcher<Condition extends { readonly kind: string }> {
  /** What its configuration is. */
  readonly data: ConditionData<Condition>;
  /** How it is written in a Hubfile. */
  readonly syntax: ConditionSyntax<Condition>;
  /** What it tests. */
  readonly compile: CompileCondition<Condition>;
}
