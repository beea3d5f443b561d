import type { LogOptions } from '../../config/config.ts';
import { defaultAccessLog } from '../../config/defaults.ts';
import type { Cursor } from '../cursor.ts';
import type { Directive } from '../scope.ts';
import { name, oneOf } from '../values.ts';

/**
 *     log {
 *         output stderr|stdout|file <path>
 *         format console|json
 *     }
 */
export const log: Directive = {
  siteOnly: true,
  once: true,
  read(cursor, scope) {
    scope.site.accessLog = cursor.options(defaultAccessLog, {
      output: (option) => ({ output: logOutput(option) }),
      format: (option) => ({ format: oneOf(option, ['console', 'json']) }),
    });
    cursor.end();
    return [];
  },
};

export function logOutput(cursor: Cursor): LogOptions['output'] {
  const kind = oneOf(cursor, ['stderr', 'stdout', 'file']);
  return kind === 'file' ? name(cursor, 'the path of a file') : kind;
}
