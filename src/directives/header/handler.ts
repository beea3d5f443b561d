import type { HeaderOperation } from '../../config/config.ts';
import type { Expand, Handler } from '../../http/exchange.ts';
import { compileOperations } from '../../http/header-operations.ts';

/** `header [<matcher>] [+|-|?]<field> [<value>|<pattern> [<replacement>]]`: on whatever is answered. */
export function header(operations: readonly HeaderOperation[], expand: Expand): Handler {
  const apply = compileOperations(operations);
  return (exchange, next) => {
    exchange.onHead((head) => {
      apply(head.headers, (template) => expand(template, exchange, head.headers));
      return undefined;
    });
    return next();
  };
}

/** `request_header [<matcher>] [+|-|?]<field> [<value>|<pattern> [<replacement>]]` */
export function requestHeader(operations: readonly HeaderOperation[], expand: Expand): Handler {
  const apply = compileOperations(operations);
  return (exchange, next) => {
    apply(exchange.headers, (template) => expand(template, exchange));
    return next();
  };
}
