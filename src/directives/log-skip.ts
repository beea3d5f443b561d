import type { HandlerData } from '../config/routes.ts';
import { object } from '../config/shape.ts';
import { type DirectiveSyntax, oneStep } from '../hubfile/scope.ts';
import type { Handler } from '../http/exchange.ts';
import { skipLog } from '../site/access-log.ts';
import type { HandlerDirective } from './directive.ts';

export interface LogSkipConfig {
  readonly kind: 'log_skip';
}

const data: HandlerData<LogSkipConfig> = { shape: () => object({}) };

const syntax: DirectiveSyntax = {
  usage: 'log_skip [<matcher>]',
  summary: 'leaves a request out of the access log',
  oldNames: ['skip_log'],
  read: oneStep(() => ({ kind: 'log_skip' })),
};

/** Keeps the request out of the access logs, whatever its result. */
function compile(): Handler {
  return (exchange, next) => {
    skipLog(exchange);
    return next();
  };
}

export const logSkip: HandlerDirective<LogSkipConfig> = { data, syntax, compile };
