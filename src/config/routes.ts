import { handlerData } from '../directives/data.ts';
import { conditionData } from '../matchers/data.ts';
import type { ConditionData } from './condition-data.ts';
import type { HandlerConfig, MatchCondition, RouteConfig } from './config.ts';
import type { HandlerData, ReadFile } from './handler-data.ts';

/** What the directive of a handler says of it. */
export function dataOf(handler: HandlerConfig): HandlerData<HandlerConfig> {
  return handlerData[handler.kind];
}

/** Whether a condition, or one inside of it, waits for files to be looked for. */
export function asksFiles(condition: MatchCondition): boolean {
  const data: ConditionData<MatchCondition> = conditionData[condition.kind];
  return data.asksFiles === true || (data.nested?.(condition).flat().some(asksFiles) ?? false);
}

/** Some routes and all that lie in them, however deep, each before those inside it. */
export function everyRoute(routes: readonly RouteConfig[]): RouteConfig[] {
  return routes.flatMap((route) => [route, ...everyRoute(routesInside(route.handler))]);
}

/** The files that the handlers of some routes read while the gateway is built. */
export function filesRead(routes: readonly RouteConfig[]): ReadFile[] {
  return everyRoute(routes).flatMap(({ handler }) => dataOf(handler).files?.(handler) ?? []);
}

function routesInside(handler: HandlerConfig): readonly RouteConfig[] {
  const data = dataOf(handler);
  return [...(data.nested?.(handler) ?? []), ...(data.answering?.(handler) ?? [])];
}
