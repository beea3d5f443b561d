import { handlerData } from '../directives/data.ts';
import type { HandlerConfig, MatchCondition, RequestMatcher, RouteConfig } from './config.ts';
import { conditionData } from '../matchers/data.ts';
import { byKind, type KindShapes, later, list, nullable, object, type Shape } from './shape.ts';

const matcher: Shape<RequestMatcher> = list(later('condition', () => condition));

const conditionShapes = Object.entries(conditionData).map(([kind, { shape }]) => [
  kind,
  shape(matcher),
]);
// Each description gives the shape of its own kind, which the entries of an object do not tell.
const condition = byKind<MatchCondition>(
  Object.fromEntries(conditionShapes) as KindShapes<MatchCondition>,
);

/** Who a route concerns; null for everybody. */
export const matcherShape: Shape<RequestMatcher | null> = nullable(matcher);

/** The steps of a site, in the order in which they run. */
export const routesShape: Shape<readonly RouteConfig[]> = list(
  object({ matcher: matcherShape, handler: later('handler', () => handler) }, { matcher: null }),
);

const shapes = Object.entries(handlerData).map(([kind, { shape }]) => [kind, shape(routesShape)]);
// As above.
const handler = byKind<HandlerConfig>(Object.fromEntries(shapes) as KindShapes<HandlerConfig>);
