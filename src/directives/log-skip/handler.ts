import type { Handler } from '../../http/exchange.ts';
import { skipLog } from '../../site/log-notes.ts';

/** Leaves the request out of the access log, whatever comes of it. */
export function logSkip(): Handler {
  return (exchange, next) => {
    skipLog(exchange);
    return next();
  };
}
