import type { Handler } from '../../http/exchange.ts';
import type { HandlerContext } from '../../site/handler-context.ts';
import type { HubPlaceConfig } from './data.ts';

/** The hub itself is set up with the site; here is its place among the routes. */
export function hub({ name }: HubPlaceConfig, { hubHandler }: HandlerContext): Handler {
  return hubHandler(name);
}
