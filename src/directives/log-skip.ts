import { object } from '../config/shape.ts';
import { oneStep } from '../hubfile/scope.ts';
import { skipLog } from '../site/access-log.ts';
import type { HandlerDirective } from './directive.ts';

export interface LogSkipConfig {
  readonly kind: 'log_skip';
}

export const logSkip: HandlerDirective<LogSkipConfig> = {
  data: { shape: () => object({}) },
  syntax: {
    usage: 'log_skip [<matcher>]',
    summary: 'leaves a request out of the access log',
    oldNames: ['skip_log'],
    read: oneStep(() => ({ kind: 'log_skip' })),
  },
  /** Keeps the request out of the access logs, whatever its result. */
  compile() {
    return (exchange, next) => {
      skipLog(exchange);
      return next();
    };
  },
};
