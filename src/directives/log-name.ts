import { list, object } from '../config/shape.ts';
import { text } from '../config/shape-values.ts';
import { isLogName } from '../config/well-formed.ts';
import { oneStep } from '../hubfile/scope.ts';
import { fitting } from '../hubfile/values.ts';
import { nameLogs } from '../site/access-log.ts';
import type { HandlerDirective } from './directive.ts';

export interface LogNameConfig {
  readonly kind: 'log_name';
  /** Logs of the site. */
  readonly names: readonly string[];
}

export const logName: HandlerDirective<LogNameConfig> = {
  data: {
    shape: () => object({ names: list(text('the name of a log', isLogName), { min: 1 }) }),
  },
  syntax: {
    usage: 'log_name [<matcher>] <name…>',
    summary: 'chooses the logs of the site for a request',
    specificLast: true,
    read: oneStep((cursor) => ({
      kind: 'log_name',
      names: cursor
        .several('the name of a log')
        .map((word) => fitting(cursor, word, isLogName, 'a name of letters, digits, _ and -')),
    })),
  },
  /** Assigns the request to the logs with these names. */
  compile({ names }) {
    return (exchange, next) => {
      nameLogs(exchange, names);
      return next();
    };
  },
};
