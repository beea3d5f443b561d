import type { ConditionSyntax } from '../../hubfile/condition-syntax.ts';
import { statusClasses } from '../../hubfile/values.ts';
import type { ErrorStatusCondition } from './data.ts';

export const errorStatus: ConditionSyntax<ErrorStatusCondition> = {
  usage: 'error_status 404 5xx',
  summary: 'in `handle_errors`, these statuses of the error',
  read: (cursor) => [{ kind: 'error_status', statuses: statusClasses(cursor) }],
  merge: (a, b) => ({ ...a, statuses: [...a.statuses, ...b.statuses] }),
};
