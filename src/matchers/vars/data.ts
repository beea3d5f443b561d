import type { ConditionData } from '../../config/condition-data.ts';
import { list, object } from '../../config/shape.ts';
import { name, text } from '../../config/shape-values.ts';

export interface VarsCondition {
  readonly kind: 'vars';
  /** The name of a variable, or a text with placeholders. */
  readonly variable: string;
  /** Texts with placeholders. */
  readonly values: readonly string[];
}

export const vars: ConditionData<VarsCondition> = {
  shape: () =>
    object({
      variable: name('a variable or a placeholder'),
      values: list(text('a value'), { min: 1 }),
    }),
};
