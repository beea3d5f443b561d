import type { ConditionData } from '../../config/condition-data.ts';
import { nullable, object } from '../../config/shape.ts';
import { name, text } from '../../config/shape-values.ts';

export interface VarsRegexpCondition {
  readonly kind: 'vars_regexp';
  /** Groups become `{re.NAME.1}`; null: `{re.1}`. */
  readonly name: string | null;
  /** The name of a variable, or a text with placeholders. */
  readonly variable: string;
  readonly pattern: string;
}

export const varsRegexp: ConditionData<VarsRegexpCondition> = {
  shape: () =>
    object(
      {
        name: nullable(text('a name')),
        variable: name('a variable or a placeholder'),
        pattern: text('a regular expression'),
      },
      { name: null },
    ),
};
