import type { HandlerConfig, ReverseProxyConfig, RouteConfig } from './config.ts';
import { everyRoute } from './routes.ts';

/** Every reverse proxy of some routes, however deep it lies, those of `forward_auth` too. */
export function proxiesOf(routes: readonly RouteConfig[]): ReverseProxyConfig[] {
  return everyRoute(routes).flatMap(({ handler }) => ownProxies(handler));
}

function ownProxies(handler: HandlerConfig): readonly ReverseProxyConfig[] {
  if (handler.kind === 'reverse_proxy') return [handler];
  return handler.kind === 'forward_auth' ? [handler.proxy] : [];
}
