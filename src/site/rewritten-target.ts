import type { Exchange, Expand } from '../http/exchange.ts';
import { pathOf } from './placeholders.ts';
import { wellFormedTarget } from './request-target.ts';

/** The target that `to` makes of a request: `/path`, `?query` or both; the part that is not named stays. */
export function rewrittenTarget(to: string, expand: Expand): (exchange: Exchange) => string {
  const mark = to.indexOf('?');
  const path = mark === -1 ? to : to.slice(0, mark);
  const query = mark === -1 ? null : to.slice(mark + 1);
  return (exchange) => {
    const newPath = path === '' ? pathOf(exchange) : expand(path, exchange);
    // A placeholder such as {uri} brings a query of its own.
    const keepsOwn = query === null && !newPath.includes('?');
    const newQuery = query === null ? '' : expand(query, exchange);
    const suffix = keepsOwn ? exchange.target.slice(pathOf(exchange).length) : '';
    return wellFormedTarget(newQuery === '' ? `${newPath}${suffix}` : `${newPath}?${newQuery}`);
  };
}
