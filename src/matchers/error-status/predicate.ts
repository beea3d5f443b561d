import { statusMatcher } from '../../proxy/status-class.ts';
import { errorStatus as statusOf } from '../../site/error-status.ts';
import type { Predicate } from '../../site/predicate.ts';
import type { ErrorStatusCondition } from './data.ts';

/** Outside of error routes there is no error, and nothing holds. */
export function errorStatus({ statuses }: ErrorStatusCondition): Predicate {
  const matches = statusMatcher(statuses);
  return (exchange) => matches(statusOf(exchange));
}
