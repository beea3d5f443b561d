import type { ConditionData } from '../../config/condition-data.ts';
import { list, object } from '../../config/shape.ts';
import { text } from '../../config/shape-values.ts';
import { isStatusPattern } from '../../config/well-formed.ts';

export interface ErrorStatusCondition {
  readonly kind: 'error_status';
  /** Statuses, or classes such as `5xx`. */
  readonly statuses: readonly string[];
}

export const errorStatus: ConditionData<ErrorStatusCondition> = {
  shape: () =>
    object({ statuses: list(text('a status such as 404 or 5xx', isStatusPattern), { min: 1 }) }),
};
