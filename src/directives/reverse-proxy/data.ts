import {
  type HandlerData,
  identityFieldsIn,
  type RequestMatcher,
  type RouteConfig,
} from '../../config/routes.ts';
import { isDnsName, isResolver } from '../../config/dns-challenge.ts';
import { type Report, error } from '../../config/problem.ts';
import {
  statusPatterns as statuses,
  anyHeaderOperations,
  field,
} from '../../config/shape-routes.ts';
import { hasRequestPlaceholder, isAllowedUpstream } from './request-upstreams.ts';
import { byKind, list, nullable, object, type Shape } from '../../config/shape.ts';
import { addressRange, headerName } from '../../config/shape-options.ts';
import { count, duration, flag, name, oneOf, secret, text } from '../../config/shape-values.ts';
import { isHeaderName, isServerName, isStatusPattern } from '../../config/well-formed.ts';
import { upstreamAddress } from '../../proxy/address.ts';
import {
  type BalancingPolicy,
  defaultActiveHealth,
  defaultDynamic,
  defaultFastcgi,
  defaultReverseProxy,
  type DynamicConfig,
  type FastcgiConfig,
  MAX_BUFFER,
  MAX_WEIGHT,
  type ReverseProxyConfig,
} from '../../proxy/proxy-config.ts';
import { isTarget } from '../../site/rewritten-target.ts';
import { responseRulesShape } from '../intercept.ts';

/** A valid name of a script's parameter. */
export function isParameterName(name: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name);
}

const nothing = object({});

const policy = byKind<BalancingPolicy>({
  random: nothing,
  round_robin: nothing,
  least_conn: nothing,
  first: nothing,
  ip_hash: nothing,
  client_ip_hash: nothing,
  uri_hash: nothing,
  weighted_round_robin: object({ weights: list(count({ max: MAX_WEIGHT }), { min: 1 }) }),
  random_choose: object({ choices: count({ min: 2 }) }, { choices: 2 }),
  header: object({ name: headerName }),
  query: object({ name: name('the name of a parameter') }),
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
    method: text('a method such as HEAD', isHeaderName),
    body: nullable(object({ pattern: name('a pattern in RE2 syntax') })),
    fails: count({ min: 1 }),
    passes: count({ min: 1 }),
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
    versions: list(oneOf('1.1', '2'), { min: 1 }),
    tlsInsecureSkipVerify: flag,
    tlsServerName: nullable(text('a host name, the same for all requests', isServerName)),
    tlsTrustPoolFiles: list(name('a PEM file')),
  },
  defaultReverseProxy.transport,
);

const fastcgi = object<FastcgiConfig>(
  {
    root: nullable(name('a directory')),
    resolveRootSymlink: flag,
    splitPath: list(name('the end of a name such as .php')),
    env: list(
      object({ name: text('the name of a parameter', isParameterName), value: text('a value') }),
    ),
  },
  defaultFastcgi,
);

export const reverseProxy: HandlerData<ReverseProxyConfig> = {
  shape: reverseProxyShape,
  answering: ({ handleResponse }) => handleResponse.flatMap(({ routes }) => routes),
  answersAll: ({ handleResponse }, someAnswersAll) =>
    handleResponse.every(
      ({ replaceStatus, routes }) => replaceStatus !== null || someAnswersAll(routes),
    ),
  patterns: ({ headerUp, headerDown, activeHealth: check }) => [
    ...headerUp,
    ...headerDown,
    ...(check === null || check.body === null ? [] : [check.body]),
  ],
  responseFields: ({ headerDown }) => headerDown,
  writesIdentity: ({ headerUp }) => identityFieldsIn(headerUp),
  files: ({ transport: about }) =>
    about.tlsTrustPoolFiles.map((path) => ({ about, field: 'tlsTrustPoolFiles', path })),
  countsHere: ({ transport: { maxConnectionsPerHost } }) => maxConnectionsPerHost > 0,
  upstreams: (about) =>
    about.upstreams
      .filter((upstream) => !hasRequestPlaceholder(upstream))
      .map((upstream) => ({ about, upstream })),
  check: checkUpstreams,
};

function reverseProxyShape(
  routes: Shape<readonly RouteConfig[]>,
  matcher: Shape<RequestMatcher>,
): Shape<Omit<ReverseProxyConfig, 'kind'>> {
  // Upstreams have no default: they are required.
  const { kind: _kind, upstreams: _upstreams, ...defaults } = defaultReverseProxy;
  return object(
    {
      upstreams: list(name('an upstream such as http://localhost:3000')),
      upstreamsAllow: list(text('a host or an address range', isAllowedUpstream)),
      dynamic: nullable(dynamic),
      loadBalancing: object<ReverseProxyConfig['loadBalancing']>(
        {
          policy,
          tryDurationMs: duration(),
          tryIntervalMs: duration(),
          retries: nullable(count()),
          retryMatch: nullable(list(matcher)),
        },
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
      method: nullable(text('a method such as GET', isHeaderName)),
      rewrite: nullable(text('a path or a query', isTarget)),
      headerUp: anyHeaderOperations,
      headerDown: anyHeaderOperations,
      requestBuffers: count({ max: MAX_BUFFER }),
      responseBuffers: count({ max: MAX_BUFFER }),
      // -1 is Caddy's "at once", which is the only behaviour here.
      flushIntervalMs: duration({ min: -1 }),
      streamTimeoutMs: duration(),
      streamCloseDelayMs: duration(),
      trustedProxies: list(addressRange),
      transport,
      fastcgi: nullable(fastcgi),
      handleResponse: responseRulesShape(routes),
    },
    defaults,
  );
}

/** After a placeholder is filled in, an upstream must still be an origin. */
function checkUpstreams(proxy: ReverseProxyConfig, report: Report): void {
  if (proxy.fastcgi !== null) checkFastcgi(proxy, report);
  checkWeights(proxy, report);
  if (proxy.dynamic !== null) checkDynamic(proxy, report);
  else if (proxy.upstreams.length === 0) {
    const message = 'reverse_proxy needs an upstream';
    const hint = 'for example http://localhost:3000';
    report(proxy, error('expected-argument', message, hint));
  }
  const { versions } = proxy.transport;
  if (!versions.includes('1.1') && isCleartext(proxy)) {
    const message = 'without TLS, HTTP/2 cannot be negotiated';
    const hint = 'write h2c://host:port, or versions h2c';
    report(proxy.transport, error('bad-upstream', message, hint));
  }
  checkRequestUpstreams(proxy, report);
  for (const upstream of proxy.upstreams) {
    if (upstreamAddress(upstream) !== null || hasRequestPlaceholder(upstream)) continue;
    const message = `the upstream "${upstream.slice(0, 80)}" is not http://host:port`;
    const hint = 'a placeholder can stand for host or host:port; use {$VAR} for a whole URL';
    report(proxy, error('bad-upstream', message, hint));
  }
}

/** Upstreams that requests name. */
function checkRequestUpstreams(proxy: ReverseProxyConfig, report: Report): void {
  const { upstreams, upstreamsAllow, activeHealth, fastcgi } = proxy;
  const named = upstreams.filter(hasRequestPlaceholder);
  const fail = (message: string, hint: string): void => {
    report(proxy, error('request-upstream', message, hint));
  };
  if (named.length === 0) {
    if (upstreamsAllow.length === 0) return;
    fail('upstreams_allow is for upstreams with placeholders', 'leave it out');
  } else if (upstreamsAllow.length === 0) {
    fail(
      'a request must not choose where the gateway connects',
      'name what it may choose from: upstreams_allow *.internal 10.0.0.0/8',
    );
  } else if (named.length < upstreams.length) {
    fail('upstreams with placeholders stand beside others', 'use a reverse_proxy of its own');
  } else if (activeHealth !== null) {
    fail('upstreams with placeholders are not checked by health_uri', 'use fail_duration');
  } else if (fastcgi !== null) {
    fail('upstreams with placeholders are not spoken to by FastCGI', 'name them');
  }
}

function isCleartext({ upstreams, dynamic: named }: ReverseProxyConfig): boolean {
  return named?.scheme === 'http' || upstreams.some((one) => /^(http|unix):/.test(one));
}

/** Reports what is not possible with dynamic upstreams, each at its place, because the rest may stay. */
function checkDynamic(proxy: ReverseProxyConfig, report: Report): void {
  const { dynamic: about, activeHealth, fastcgi } = proxy;
  if (about === null) return;
  if (activeHealth !== null) {
    const message = 'health_uri does not check upstreams from DNS';
    const hint = 'use fail_duration and max_fails, or let the DNS return only healthy upstreams';
    report(proxy, error('not-dynamic', message, hint), { field: 'activeHealth' });
  }
  if (fastcgi !== null && about.scheme !== 'http') {
    const message = `FastCGI is not possible with ${about.scheme}`;
    const hint = 'remove the options of the transport';
    report(about, error('not-dynamic', message, hint));
  }
}

function checkWeights(proxy: ReverseProxyConfig, report: Report): void {
  const { upstreams, dynamic: named, loadBalancing: about } = proxy;
  if (about.policy.kind !== 'weighted_round_robin') return;
  const { weights } = about.policy;
  const found = (message: string, hint: string): void =>
    report(about, error('bad-weights', message, hint), { field: 'policy' });
  if (named !== null) {
    found('weights are not possible with upstreams from DNS', 'use least_conn');
  } else if (weights.length !== upstreams.length) {
    const message = `${weights.length} weights for ${upstreams.length} upstreams`;
    found(message, 'write one weight per upstream, in order; each port of a range counts');
  } else if (weights.every((weight) => weight === 0)) {
    found('no upstream has a weight above 0', 'write at least 1 for upstreams in use');
  }
}

/** Options that exist only for HTTP. */
function checkFastcgi(proxy: ReverseProxyConfig, report: Report): void {
  const { upstreams, activeHealth } = proxy;
  const about = upstreams;
  const found = (message: string, hint: string): void =>
    report(about, error('not-by-fastcgi', message, hint));
  if (activeHealth !== null) {
    found('health checks use HTTP only', 'use fail_duration and max_fails instead');
  }
  if (proxy.rewrite !== null || proxy.method !== null) {
    found(
      'hubgate does not change requests to scripts',
      'use rewrite before it, or another site in front',
    );
  }
  if (upstreams.some((upstream) => upstream.startsWith('https:'))) {
    found('FastCGI is not possible over TLS', 'use a socket, or a port of this host');
  }
  if (upstreams.some((upstream) => /^(unix\+)?h2c:/.test(upstream))) {
    found('FastCGI is not HTTP/2', 'write host:port, or unix//path');
  }
}

const dynamicSettings = {
  name: text('a name in the DNS', isDnsName),
  scheme: oneOf('http', 'https', 'h2c'),
  refreshMs: duration({ min: 1000 }),
  resolvers: list(text('an address such as 10.0.0.53 or 10.0.0.53:5353', isResolver)),
  dialTimeoutMs: duration({ min: 1 }),
  graceMs: nullable(duration()),
};

const dynamic = byKind<DynamicConfig>({
  a: object(
    {
      ...dynamicSettings,
      port: count({ min: 1, max: 65_535 }),
      versions: list(oneOf('ipv4', 'ipv6'), { min: 1 }),
    },
    { ...defaultDynamic, versions: ['ipv4', 'ipv6'] },
  ),
  srv: object(dynamicSettings, defaultDynamic),
});
