import type { Handler } from '../../http/exchange.ts';
import { compileOperations } from '../../http/header-operations.ts';
import { matchable } from '../../http/linear-regexp.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RequestHeaderConfig } from './data.ts';

/** `request_header [<matcher>] [+|-|?]<field> [<value>|<pattern> [<replacement>]]` */
export function requestHeader(
  { operations }: RequestHeaderConfig,
  { expand }: HandlerContext,
): Handler {
  const apply = compileOperations(operations, matchable);
  return (exchange, next) => {
    apply(exchange.headers, (template) => expand(template, exchange));
    return next();
  };
}
