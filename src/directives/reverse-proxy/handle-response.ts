import { ANY_RESPONSE } from '../../config/shape-routes.ts';
import type { Cursor } from '../../hubfile/cursor.ts';
import type { ResponseMatchers } from '../../hubfile/named-matchers.ts';
import type { Scope } from '../../hubfile/scope.ts';
import { count } from '../../hubfile/values.ts';
import type { ReverseProxyConfig } from '../../proxy/proxy-config.ts';

type Handled = ReverseProxyConfig['handleResponse'][number];

/** `handle_response [@name] { <directives…> }` */
export function handleResponse(cursor: Cursor, scope: Scope, responses: ResponseMatchers): Handled {
  const matcher = responses.find(cursor);
  const routes = scope.routes(cursor.block(), 'documented');
  return cursor.origins.of(cursor.span, { ...matcher, replaceStatus: null, routes });
}

/** `replace_status [@name] <status>` */
export function replaceStatus(cursor: Cursor, responses: ResponseMatchers): Handled {
  const matcher = cursor.left > 1 ? responses.find(cursor) : ANY_RESPONSE;
  const status = count(cursor, { min: 200, max: 599 });
  return cursor.origins.of(cursor.span, { ...matcher, replaceStatus: status, routes: [] });
}
