import type {
  BalancingPolicy,
  HeaderOperation,
  ReverseProxyConfig,
  RouteConfig,
} from './config.ts';
import { defaultActiveHealth, defaultReverseProxy } from './defaults.ts';
import { addressRange, headerName } from './shape-options.ts';
import { byKind, list, nullable, object, type Shape } from './shape.ts';
import { count, duration, flag, name, secret, text } from './shape-values.ts';
import { isHeaderName, isHeaderValue, isStatusPattern } from './well-formed.ts';

export const headerValue = text('a value without line breaks', isHeaderValue);
const field = object({ name: headerName, value: headerValue });
const statuses = list(text('a status such as 404 or 5xx', isStatusPattern));

/** One change of a header. */
export const headerOperation: Shape<HeaderOperation> = byKind<HeaderOperation>({
  set: field,
  add: field,
  default: field,
  delete: object({
    name: text('the name of a header field; * may stand at either end', (pattern) =>
      isHeaderName(pattern.replaceAll(/^\*|\*$/g, '')),
    ),
  }),
  replace: object({
    name: headerName,
    pattern: text('a regular expression'),
    replacement: headerValue,
  }),
});

const nothing = object({});

const policy = byKind<BalancingPolicy>({
  random: nothing,
  round_robin: nothing,
  least_conn: nothing,
  first: nothing,
  ip_hash: nothing,
  client_ip_hash: nothing,
  uri_hash: nothing,
  header: object({ name: headerName }),
  cookie: object(
    { name: name('the name of a cookie'), secret: nullable(secret) },
    { name: 'lb', secret: null },
  ),
});

const activeHealth = object<NonNullable<ReverseProxyConfig['activeHealth']>>(
  {
    uri: text('a path such as /health', (uri) => uri.startsWith('/')),
    port: nullable(count({ min: 1, max: 65_535 })),
    intervalMs: duration({ min: 1 }),
    timeoutMs: duration({ min: 1 }),
    status: text('a status such as 200 or 2xx', isStatusPattern),
    headers: list(field),
  },
  defaultActiveHealth,
);

const transport = object<ReverseProxyConfig['transport']>(
  {
    dialTimeoutMs: duration({ min: 1 }),
    responseHeaderTimeoutMs: duration(),
    readTimeoutMs: duration(),
    writeTimeoutMs: duration(),
    keepAliveMs: duration(),
    maxConnectionsPerHost: count(),
    tlsInsecureSkipVerify: flag,
    tlsServerName: nullable(name('a host name')),
    tlsTrustPoolFile: nullable(name('a PEM file')),
  },
  defaultReverseProxy.transport,
);

/** A reverse proxy, without its `kind`. */
export function reverseProxyShape(
  routes: Shape<readonly RouteConfig[]>,
): Shape<Omit<ReverseProxyConfig, 'kind'>> {
  return object(
    {
      upstreams: list(name('an upstream such as http://localhost:3000'), { min: 1 }),
      loadBalancing: object<ReverseProxyConfig['loadBalancing']>(
        { policy, tryDurationMs: duration(), tryIntervalMs: duration() },
        defaultReverseProxy.loadBalancing,
      ),
      activeHealth: nullable(activeHealth),
      passiveHealth: object<ReverseProxyConfig['passiveHealth']>(
        {
          failDurationMs: duration(),
          maxFails: count({ min: 1 }),
          unhealthyStatus: statuses,
          unhealthyLatencyMs: duration(),
          unhealthyRequestCount: count(),
        },
        defaultReverseProxy.passiveHealth,
      ),
      headerUp: list(headerOperation),
      headerDown: list(headerOperation),
      // -1 is Caddy's "at once", which is how it always is.
      flushIntervalMs: duration({ min: -1 }),
      streamTimeoutMs: duration(),
      streamCloseDelayMs: duration(),
      trustedProxies: list(addressRange),
      transport,
      handleResponse: list(
        object<ReverseProxyConfig['handleResponse'][number]>(
          { status: statuses, header: nullable(field), routes },
          { status: [], header: null },
        ),
      ),
    },
    withoutUpstreams(),
  );
}

/** Upstreams have no default: they must be given. */
function withoutUpstreams(): Partial<Omit<ReverseProxyConfig, 'kind'>> {
  const { kind: _kind, upstreams: _upstreams, ...defaults } = defaultReverseProxy;
  return defaults;
}
