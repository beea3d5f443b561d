import { type HandlerData, identityFieldsIn } from '../../config/routes.ts';
import { type Report, error } from '../../config/problem.ts';
import { hasRequestPlaceholder } from './request-upstreams.ts';
import { upstreamAddress } from '../../proxy/address.ts';
import { type ReverseProxyConfig, reverseProxyShape } from '../../proxy/proxy-config.ts';

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
