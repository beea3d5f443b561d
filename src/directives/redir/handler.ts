import { answer } from '../../http/answer.ts';
import type { Handler } from '../../http/exchange.ts';
import { fieldValue } from '../../http/header-operations.ts';
import { sameSiteLocation } from '../../http/location.ts';
import { queryFrom } from '../../site/query-text.ts';
import { QUERY_MARK } from '../../site/rewritten-target.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RedirConfig } from './data.ts';

/** `redir [<matcher>] <to> [<status>|permanent|temporary]` */
export function redir({ to, status }: RedirConfig, { expand }: HandlerContext): Handler {
  const [before = '', fragment = ''] = to.split(/(#.*)/s, 2);
  const mark = before.search(QUERY_MARK);
  const path = mark === -1 ? before : before.slice(0, mark);
  const query = mark === -1 ? null : before.slice(mark + 1);
  return (exchange) => {
    const location = sameSiteLocation(to, expand(path, exchange));
    // What a placeholder brings into a query stays one value, as in `rewrite`.
    const search = query === null ? '' : `?${queryFrom(query, exchange, expand)}`;
    const target = location + search + expand(fragment, exchange);
    answer(exchange, status, { Location: fieldValue(target) });
  };
}
