import type {
  ConfigRegistry,
  HandlerConfig,
  MatchCondition,
  RequestMatcher,
  RouteConfig,
} from './routes.ts';
import { byKind, type KindShapes, later, list, nullable, object, type Shape } from './shape.ts';

/** The shapes of matchers and routes, which are those of what the registry has. */
export function routeShapes({ directives, matchers }: ConfigRegistry): {
  /** null: every request. */
  readonly matcher: Shape<RequestMatcher | null>;
  /** The steps of a site, in the order in which they run. */
  readonly routes: Shape<readonly RouteConfig[]>;
} {
  const conditions: Shape<RequestMatcher> = list(later('condition', () => condition));
  const conditionShapes = Object.entries(matchers).map(([kind, { data }]) => [
    kind,
    data.shape(conditions),
  ]);
  // Each data gives the shape of its own kind, which the entries of an object do not express.
  const condition = byKind<MatchCondition>(
    Object.fromEntries(conditionShapes) as KindShapes<MatchCondition>,
  );
  const matcher = nullable(conditions);
  const routes: Shape<readonly RouteConfig[]> = list(
    object<RouteConfig>({ matcher, handler: later('handler', () => handler) }, { matcher: null }),
  );
  const handlerShapes = Object.entries(directives).flatMap(([kind, { data }]) =>
    data === undefined ? [] : [[kind, data.shape(routes)] as const],
  );
  // As above.
  const handler = byKind<HandlerConfig>(
    Object.fromEntries(handlerShapes) as KindShapes<HandlerConfig>,
  );
  return { matcher, routes };
}
