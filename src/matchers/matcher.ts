import type { ConditionData } from '../config/routes.ts';
import type { ConditionSyntax } from '../hubfile/scope.ts';
import type { CompileCondition } from '../site/matchers.ts';

/**
 * One kind of condition that matchers are made of. Its name in a Hubfile is the `kind` of its
 * configuration, and the module declares that as a member of `ConditionKinds`.
 */
export interface Matcher<Condition extends { readonly kind: string }> {
  /** What its configuration is. */
  readonly data: ConditionData<Condition>;
  /** How it is written in a Hubfile. */
  readonly syntax: ConditionSyntax<Condition>;
  /** What it tests. */
  readonly compile: CompileCondition<Condition>;
}
