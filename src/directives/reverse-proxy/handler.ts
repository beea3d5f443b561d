import type { Handler } from '../../http/exchange.ts';
import { ReverseProxy } from '../../proxy/reverse-proxy.ts';
import { rewrittenTarget } from '../../site/rewritten-target.ts';
import type { HandlerContext } from '../../site/handler-context.ts';
import type { ReverseProxyConfig } from '../../proxy/proxy-config.ts';

/**
 * Forwards to upstreams, whose state outlives the configuration.
 *
 * @throws HubgateError `invalid-upstream`, `invalid-pattern`, `unreadable-trust-pool`
 */
export function reverseProxy(config: ReverseProxyConfig, context: HandlerContext): Handler {
  const { rewrite } = config;
  const target = rewrite === null ? null : rewrittenTarget(rewrite, context.expand);
  const proxy = new ReverseProxy(config, { ...context, registry: context.upstreams, target });
  context.defer(() => proxy.close());
  return context.besidePages(proxy.handle);
}
