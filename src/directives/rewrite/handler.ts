import type { Handler } from '../../http/exchange.ts';
import { pathOf } from '../../site/placeholders.ts';
import { setTarget } from '../../site/request-target.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RewriteConfig } from './data.ts';

/** `rewrite [<matcher>] <to>`: `/path`, `?query` or both; the part that is not named stays. */
export function rewrite({ to }: RewriteConfig, { expand }: HandlerContext): Handler {
  const mark = to.indexOf('?');
  const path = mark === -1 ? to : to.slice(0, mark);
  const query = mark === -1 ? null : to.slice(mark + 1);
  return (exchange, next) => {
    const newPath = path === '' ? pathOf(exchange) : expand(path, exchange);
    // A placeholder such as {uri} brings a query of its own.
    const keepsOwn = query === null && !newPath.includes('?');
    const newQuery = query === null ? '' : expand(query, exchange);
    const suffix = keepsOwn ? exchange.target.slice(pathOf(exchange).length) : '';
    setTarget(exchange, newQuery === '' ? `${newPath}${suffix}` : `${newPath}?${newQuery}`);
    return next();
  };
}
