import type { ConditionData } from '../config/routes.ts';
import { list, object } from '../config/shape.ts';
import { text } from '../config/shape-values.ts';
import { isStatusPattern, statusMatcher } from '../config/well-formed.ts';
import type { ConditionSyntax } from '../hubfile/scope.ts';
import { statusClasses } from '../hubfile/values.ts';
import { errorStatus as statusOf } from '../http/request-variables.ts';
import type { Predicate } from '../site/text-pattern.ts';
import type { Matcher } from './matcher.ts';

export interface ErrorStatusCondition {
  readonly kind: 'error_status';
  /** Statuses, or classes such as `5xx`. */
  readonly statuses: readonly string[];
}

const data: ConditionData<ErrorStatusCondition> = {
  shape: () =>
    object({ statuses: list(text('a status such as 404 or 5xx', isStatusPattern), { min: 1 }) }),
};

const syntax: ConditionSyntax<ErrorStatusCondition> = {
  usage: 'error_status 404 5xx',
  summary: 'these statuses of the error (in `handle_errors`)',
  read: (cursor) => [{ kind: 'error_status', statuses: statusClasses(cursor) }],
  merge: (a, b) => ({ ...a, statuses: [...a.statuses, ...b.statuses] }),
};

/** Outside of error routes there is no error, and nothing matches. */
function compile({ statuses }: ErrorStatusCondition): Predicate {
  const matches = statusMatcher(statuses);
  return (exchange) => matches(statusOf(exchange));
}

export const errorStatus: Matcher<ErrorStatusCondition> = { data, syntax, compile };
