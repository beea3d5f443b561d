import { text } from '../config/shape-values.ts';
import { isStatusPattern, statusMatcher } from '../config/well-formed.ts';
import { statusClasses } from '../hubfile/values.ts';
import { errorStatus as statusOf } from '../http/request-variables.ts';
import { type ListCondition, listOf, type Matcher } from './matcher.ts';

export const errorStatus: Matcher<ListCondition<'error_status', 'statuses'>> = listOf(
  'error_status',
  'statuses',
  {
    item: text('a status such as 404 or 5xx', isStatusPattern),
    usage: 'error_status 404 5xx',
    summary: 'these statuses of the error (in `handle_errors`)',
    read: statusClasses,
    /** Outside of error routes there is no error, and nothing matches. */
    compile(statuses) {
      const matches = statusMatcher(statuses);
      return (exchange) => matches(statusOf(exchange));
    },
  },
);
