import type { Handler } from '../../http/exchange.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { RouteBlockConfig } from './data.ts';

/** Runs the routes of its block, then those after it. */
export function route({ routes }: RouteBlockConfig, { compileRoutes }: HandlerContext): Handler {
  return compileRoutes(routes);
}
