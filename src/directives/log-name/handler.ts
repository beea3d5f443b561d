import type { Handler } from '../../http/exchange.ts';
import { nameLogs } from '../../site/log-notes.ts';
import type { LogNameConfig } from './data.ts';

/** Has the request logged by the logs of these names. */
export function logName({ names }: LogNameConfig): Handler {
  return (exchange, next) => {
    nameLogs(exchange, names);
    return next();
  };
}
