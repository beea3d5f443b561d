import type { Handler } from '../../http/exchange.ts';
import { pathOf } from '../../site/placeholders.ts';
import { queryFrom } from '../../site/query-text.ts';
import { setTarget } from '../../site/request-target.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RewriteConfig } from './data.ts';

/** What `{?query}` has in its braces begins no query. */
const QUERY_MARK = /(?<!\{)\?/;

/** `rewrite [<matcher>] <to>`: `/path`, `?query` or both; the part that is not named stays. */
export function rewrite({ to }: RewriteConfig, { expand }: HandlerContext): Handler {
  const mark = to.search(QUERY_MARK);
  const path = mark === -1 ? to : to.slice(0, mark);
  const query = mark === -1 ? null : to.slice(mark + 1);
  return (exchange, next) => {
    const before = pathOf(exchange);
    const beforeQuery = exchange.target.slice(before.length + 1);
    // A placeholder such as {uri} brings a query of its own.
    const [newPath = '', brought = ''] =
      path === '' ? [before] : expand(path, exchange).split(/\?(.*)/s);
    const written = query === null ? beforeQuery : queryFrom(query, exchange, expand);
    const newQuery = query === '' ? brought : written;
    setTarget(exchange, newQuery === '' ? newPath : `${newPath}?${newQuery}`);
    return next();
  };
}
