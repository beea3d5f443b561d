import { HttpError } from '../../http/errors.ts';
import type { Handler } from '../../http/exchange.ts';
import type { HandlerContext } from '../handler-context.ts';
import { setErrorMessage } from '../../site/error-status.ts';
import type { ErrorConfig } from './data.ts';

/** Fails, so that the error routes answer. */
export function error({ status, message }: ErrorConfig, { expand }: HandlerContext): Handler {
  return (exchange) => {
    const text = expand(message, exchange);
    setErrorMessage(exchange, text);
    throw new HttpError(status, text);
  };
}
