import type { HandlerConfig, RouteConfig } from './config.ts';

/** Some routes and all that lie in them, however deep, each before those inside it. */
export function everyRoute(routes: readonly RouteConfig[]): RouteConfig[] {
  return routes.flatMap((route) => [route, ...everyRoute(routesInside(route.handler))]);
}

function routesInside(handler: HandlerConfig): readonly RouteConfig[] {
  switch (handler.kind) {
    case 'handle':
    case 'route':
      return handler.routes;
    case 'reverse_proxy':
      return handler.handleResponse.flatMap(({ routes }) => routes);
    case 'forward_auth':
      return handler.proxy.handleResponse.flatMap(({ routes }) => routes);
    default:
      return [];
  }
}
