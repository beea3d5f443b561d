import type { Handler } from '../../http/exchange.ts';
import type { HandlerContext } from '../handler-context.ts';
import type { HandleConfig } from './data.ts';

/** Runs the routes of its block, then those after it. */
export function handle({ routes }: HandleConfig, { compileRoutes }: HandlerContext): Handler {
  return compileRoutes(routes);
}
