import type { HandlerConfig, ReverseProxyConfig, RouteConfig } from './config.ts';

/** Every reverse proxy of some routes, however deep it lies, those of `forward_auth` too. */
export function proxiesOf(routes: readonly RouteConfig[]): ReverseProxyConfig[] {
  return routes.flatMap(({ handler }) => {
    const own = ownProxies(handler);
    const inner = own.flatMap((proxy) => proxy.handleResponse.flatMap((one) => one.routes));
    const below = handler.kind === 'handle' || handler.kind === 'route' ? handler.routes : inner;
    return [...own, ...proxiesOf(below)];
  });
}

function ownProxies(handler: HandlerConfig): readonly ReverseProxyConfig[] {
  if (handler.kind === 'reverse_proxy') return [handler];
  return handler.kind === 'forward_auth' ? [handler.proxy] : [];
}
