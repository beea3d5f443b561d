import { HttpError } from '../../http/errors.ts';
import type { Handler } from '../../http/exchange.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { ErrorConfig } from './data.ts';

/** Fails, so that the error routes answer. */
export function error({ status, message }: ErrorConfig, { expand }: HandlerContext): Handler {
  return (exchange) => {
    throw new HttpError(status, expand(message, exchange));
  };
}
