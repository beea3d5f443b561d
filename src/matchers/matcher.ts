import type { ConditionData } from '../config/routes.ts';
import type { ConditionSyntax } from '../hubfile/scope.ts';
import type { CompileCondition } from '../site/text-pattern.ts';

/**
 * One kind of condition in matchers. Its name in a Hubfile is the `kind` of its configuration. The registry infers the
 * union of all conditions from these objects.
 */
export interface Matcher<Condition extends { readonly kind: string }> {
  /** Its configuration. */
  readonly data: ConditionData<Condition>;
  /** Its syntax in a Hubfile. */
  readonly syntax: ConditionSyntax<Condition>;
  /** Its test at run time. */
  readonly compile: CompileCondition<Condition>;
}
