import type { Exchange, Expand } from '../http/exchange.ts';
import { canonicalRewrite } from '../http/canonical-target.ts';
import { pathOf } from '../http/request-path.ts';
import { queryFrom } from './query-text.ts';

/** What `{?query}` has in its braces begins no query. */
export const QUERY_MARK = /(?<!\{)\?/;

/** The target that `to` makes of a request: `/path`, `?query` or both; the part that is not named stays. */
export function rewrittenTarget(to: string, expand: Expand): (exchange: Exchange) => string {
  const mark = to.search(QUERY_MARK);
  const path = mark === -1 ? to : to.slice(0, mark);
  const query = mark === -1 ? null : to.slice(mark + 1);
  return (exchange) => {
    const before = pathOf(exchange);
    const beforeQuery = exchange.target.slice(before.length + 1);
    // A placeholder such as {uri} brings a query of its own.
    const [newPath = '', brought = ''] =
      path === '' ? [before] : expand(path, exchange).split(/\?(.*)/s);
    const written = query === null ? beforeQuery : queryFrom(query, exchange, expand);
    const newQuery = query === '' ? brought : written;
    return canonicalRewrite(newQuery === '' ? newPath : `${newPath}?${newQuery}`);
  };
}
