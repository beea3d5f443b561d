import type { Handler } from '../../http/exchange.ts';
import { rewrittenTarget } from '../../site/rewritten-target.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RewriteConfig } from './data.ts';

/** `rewrite [<matcher>] <to>`: `/path`, `?query` or both; the part that is not named stays. */
export function rewrite({ to }: RewriteConfig, { expand }: HandlerContext): Handler {
  const rewritten = rewrittenTarget(to, expand);
  return (exchange, next) => {
    exchange.target = rewritten(exchange);
    return next();
  };
}
