import type { RequestMatcher } from './config.ts';
import type { Shape } from './shape.ts';

/**
 * What the configuration of one kind of condition is: the face of a matcher that both others know.
 * A member called `pattern` is an expression of RE2, and is checked as one.
 */
export interface ConditionData<Condition extends { readonly kind: string }> {
  /** Its members but `kind`, for YAML, JSON and workers; `inner` is the shape of matchers in it. */
  shape(inner: Shape<RequestMatcher>): Shape<Omit<Condition, 'kind'>>;
  /** It asks files, so that its answer comes later. */
  readonly asksFiles?: true;
  /** Matchers inside of it. */
  nested?(condition: Condition): readonly RequestMatcher[];
}
