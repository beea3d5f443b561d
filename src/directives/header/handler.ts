import type { Handler } from '../../http/exchange.ts';
import { compileOperations } from '../../http/header-operations.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { HeaderConfig } from './data.ts';

/** `header [<matcher>] [+|-|?]<field> [<value>|<pattern> [<replacement>]]`: on whatever is answered. */
export function header({ operations }: HeaderConfig, { expand }: HandlerContext): Handler {
  const apply = compileOperations(operations);
  return (exchange, next) => {
    exchange.onHead((head) => {
      apply(head.headers, (template) => expand(template, exchange, head.headers));
      return undefined;
    });
    return next();
  };
}
