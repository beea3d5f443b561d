// The configuration of `reverse_proxy`: its type, defaults and shape.

import { isDnsName, isResolver } from '../config/dns-challenge.ts';
import type { RouteConfig, RequestMatcher } from '../config/routes.ts';
import { addressRange, headerName } from '../config/shape-options.ts';
import {
  anyHeaderOperations,
  field,
  type ResponseRule,
  responseRulesShape,
  statusPatterns,
} from '../config/shape-routes.ts';
import { count, duration, flag, name, names, oneOf, secret, text } from '../config/shape-values.ts';
import {
  byKind,
  defaultsOf,
  list,
  object,
  type Of,
  optional,
  section,
  type Shape,
  withDefault,
} from '../config/shape.ts';
import { MINUTE, PORT, SECOND } from '../config/units.ts';
import {
  isAddressRange,
  isHeaderName,
  isRewriteTarget,
  isServerName,
  isStatusPattern,
} from '../config/well-formed.ts';
import type { Secret } from '../kernel/secret.ts';

/** Largest ratio of the weights of two upstreams. */
export const MAX_WEIGHT = 10_000;

/** The largest buffer for a body, in bytes. */
export const MAX_BUFFER = 16 * 1024 * 1024;

const ALLOWED = /^(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?::\d{1,5})?$/i;

/**
 * Whether a word is valid in `upstreams_allow`: a host or `*.domain`, both with an optional port, or an
 * address range.
 */
export function isAllowedUpstream(word: string): boolean {
  return isAddressRange(word) || ALLOWED.test(word);
}

/** A valid name of a script's parameter. */
export function isParameterName(name: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name);
}

export const POLICIES_WITHOUT_SETTINGS = [
  'random',
  'round_robin',
  'least_conn',
  'first',
  'ip_hash',
  'client_ip_hash',
  'uri_hash',
] as const;

export type BalancingPolicy =
  | { readonly kind: (typeof POLICIES_WITHOUT_SETTINGS)[number] }
  | { readonly kind: 'weighted_round_robin'; readonly weights: readonly number[] }
  | { readonly kind: 'random_choose'; readonly choices: number }
  | { readonly kind: 'header' | 'query'; readonly name: string }
  | { readonly kind: 'cookie'; readonly name: string; readonly secret: Secret | null };

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
  random_choose: object({ choices: withDefault(count({ min: 2 }), 2) }),
  header: object({ name: headerName }),
  query: object({ name: name('the name of a parameter') }),
  cookie: object({
    name: withDefault(name('the name of a cookie'), 'lb'),
    secret: optional(secret),
  }),
});

export const dynamicMembers = {
  name: text('a name in the DNS', isDnsName),
  scheme: withDefault(oneOf('http', 'https', 'h2c'), 'http'),
  refreshMs: withDefault(duration({ min: 1000 }), MINUTE),
  /** Addresses of name servers, with a port unless it is 53; empty: those of the system. */
  resolvers: withDefault(
    list(text('an address such as 10.0.0.53 or 10.0.0.53:5353', isResolver)),
    [],
  ),
  /** Time limit for each of two attempts to reach one. */
  dialTimeoutMs: withDefault(duration({ min: 1 }), 2 * SECOND),
  /** How long the old list is kept if lookups fail; null: until one succeeds. */
  graceMs: optional(duration()),
};

export const defaultDynamic = defaultsOf(dynamicMembers);

const addressMembers = {
  ...dynamicMembers,
  port: count(PORT),
  versions: withDefault(list(oneOf('ipv4', 'ipv6'), { min: 1 }), ['ipv4', 'ipv6']),
};

interface DynamicAddresses extends Of<typeof addressMembers> {
  readonly kind: 'a';
}

interface DynamicServices extends Of<typeof dynamicMembers> {
  readonly kind: 'srv';
}

export type DynamicConfig = DynamicAddresses | DynamicServices;

const dynamic = byKind<DynamicConfig>({ a: object(addressMembers), srv: object(dynamicMembers) });

export const retryMembers = {
  /** Total time for attempts with other upstreams; 0 means one attempt per upstream, without repetition. */
  tryDurationMs: withDefault(duration(), 0),
  tryIntervalMs: withDefault(duration(), 250),
  /** Most further attempts of one request after the first; null: limited only by time. */
  retries: optional(count()),
};

const balancingMembers = (matcher: Shape<RequestMatcher>) => ({
  policy: withDefault(policy, { kind: 'random' }),
  ...retryMembers,
  /** Requests that are repeated whatever their method, and no others; null: those that are safe. */
  retryMatch: optional(list(matcher)),
});

interface LoadBalancing extends Of<ReturnType<typeof balancingMembers>> {}

export const activeHealthMembers = {
  uri: withDefault(
    text('a path such as /health', (uri) => uri.startsWith('/')),
    '/',
  ),
  port: optional(count(PORT)),
  intervalMs: withDefault(duration({ min: 1 }), 30 * SECOND),
  timeoutMs: withDefault(duration({ min: 1 }), 5 * SECOND),
  /** `200`, or a class such as `2xx`. */
  status: withDefault(text('a status such as 200 or 2xx', isStatusPattern), '2xx'),
  headers: withDefault(list(field), []),
  method: withDefault(text('a method such as HEAD', isHeaderName), 'GET'),
  /** Pattern that the first 64 KiB of the response must match, in RE2 syntax; null: any response. */
  body: optional(object({ pattern: name('a pattern in RE2 syntax') })),
  /** Bad responses in a row that remove an upstream, and good ones that bring it back. */
  fails: withDefault(count({ min: 1 }), 1),
  passes: withDefault(count({ min: 1 }), 1),
};

interface ActiveHealth extends Of<typeof activeHealthMembers> {}

export const defaultActiveHealth: ActiveHealth = defaultsOf(activeHealthMembers);

export const passiveHealthMembers = {
  /** How long a failure counts; 0 turns passive checks off. */
  failDurationMs: withDefault(duration(), 0),
  maxFails: withDefault(count({ min: 1 }), 1),
  /** Statuses, or classes such as `5xx`, that count as failures. */
  unhealthyStatus: withDefault(statusPatterns, []),
  /** 0 means that latency does not count. */
  unhealthyLatencyMs: withDefault(duration(), 0),
  /** Concurrent requests beyond which an upstream counts as unhealthy; 0 means no limit. */
  unhealthyRequestCount: withDefault(count(), 0),
};

interface PassiveHealth extends Of<typeof passiveHealthMembers> {}

/** What both HTTP and FastCGI have. */
export const timeoutMembers = {
  dialTimeoutMs: withDefault(duration({ min: 1 }), 3 * SECOND),
  /** 0 means no limit, here and below. */
  responseHeaderTimeoutMs: withDefault(duration(), 0),
  readTimeoutMs: withDefault(duration(), 0),
  writeTimeoutMs: withDefault(duration(), 0),
};

export const transportMembers = {
  ...timeoutMembers,
  /** How long an idle connection is kept; 0 closes it after each exchange. */
  keepAliveMs: withDefault(duration(), 2 * MINUTE),
  /** HTTP/2 sessions count as connections; 0 means 100 of them. */
  maxConnectionsPerHost: withDefault(count(), 0),
  /** Versions that are offered to upstreams behind TLS. For `h2c://`, only HTTP/2 is used. */
  versions: withDefault(list(oneOf('1.1', '2'), { min: 1 }), ['1.1']),
  tlsInsecureSkipVerify: withDefault(flag, false),
  tlsServerName: optional(text('a host name, the same for all requests', isServerName)),
  /** Empty: the authorities of the platform. */
  tlsTrustPoolFiles: withDefault(list(name('a PEM file')), []),
};

interface ProxyTransport extends Of<typeof transportMembers> {}

const parameter = object({
  name: text('the name of a parameter', isParameterName),
  value: text('a value'),
});

export const fastcgiMembers = {
  /** The site's files from the view of the FastCGI server; null: the `root` of the site. */
  root: optional(name('a directory')),
  /** Whether links in the root are followed, so that a new release has new paths of scripts. */
  resolveRootSymlink: withDefault(flag, false),
  /** Ends of the names of scripts; the part of a path after one is `PATH_INFO`. */
  splitPath: withDefault(names('the end of a name such as .php'), []),
  /** Further parameters, with placeholders. */
  env: withDefault(list(parameter), []),
};

export interface FastcgiConfig extends Of<typeof fastcgiMembers> {}

export const defaultFastcgi: FastcgiConfig = defaultsOf(fastcgiMembers);

const proxyMembers = (routes: Shape<readonly RouteConfig[]>, matcher: Shape<RequestMatcher>) => ({
  /** Absolute origins: `http://`, `https://` or `h2c://host:port`, `unix:/path` or `unix+h2c:/path`. */
  upstreams: list(name('an upstream such as http://localhost:3000')),
  /** Where placeholders in upstreams may lead: hosts, `*.domain`, either with a port, and address ranges. */
  upstreamsAllow: withDefault(list(text('a host or an address range', isAllowedUpstream)), []),
  /** Upstreams from the DNS; `upstreams` are used while it returns none. */
  dynamic: optional(dynamic),
  loadBalancing: section<LoadBalancing>(balancingMembers(matcher)),
  activeHealth: optional<ActiveHealth>(object(activeHealthMembers)),
  passiveHealth: section<PassiveHealth>(passiveHealthMembers),
  /** The method of requests to upstreams, instead of the client's; with GET and HEAD, no body is sent. */
  method: optional(text('a method such as GET', isHeaderName)),
  /** The target of requests to upstreams, with placeholders, as in `rewrite`. */
  rewrite: optional(text('a path or a query', isRewriteTarget)),
  headerUp: withDefault(anyHeaderOperations, []),
  headerDown: withDefault(anyHeaderOperations, []),
  /** Bytes of a body that are read before it is passed on; 0: it is streamed. At most {@link MAX_BUFFER}. */
  requestBuffers: withDefault(count({ max: MAX_BUFFER }), 0),
  responseBuffers: withDefault(count({ max: MAX_BUFFER }), 0),
  /** Accepted for compatibility with Caddy, whose -1 means "at once": responses are always flushed at once. */
  flushIntervalMs: withDefault(duration({ min: -1 }), 0),
  /** Longest life of an upgraded connection; 0 means no limit. */
  streamTimeoutMs: withDefault(duration(), 0),
  /** How long upgraded connections outlive the configuration that opened them; 0 means no limit. */
  streamCloseDelayMs: withDefault(duration(), 0),
  trustedProxies: withDefault(list(addressRange), []),
  transport: section<ProxyTransport>(transportMembers),
  /** How a FastCGI server is addressed; null: with HTTP. */
  fastcgi: optional<FastcgiConfig>(object(fastcgiMembers)),
  handleResponse: withDefault<readonly ResponseRule[]>(responseRulesShape(routes), []),
});

export interface ReverseProxyConfig extends Of<ReturnType<typeof proxyMembers>> {
  readonly kind: 'reverse_proxy';
}

/** The shape of a reverse proxy, given those of routes and matchers. */
export function reverseProxyShape(
  routes: Shape<readonly RouteConfig[]>,
  matcher: Shape<RequestMatcher>,
): Shape<Omit<ReverseProxyConfig, 'kind'>> {
  return object(proxyMembers(routes, matcher));
}

/** Accepts only an empty list. The defaults are the same for every shape of routes and matchers. */
const none: Shape<readonly never[]> = list(oneOf<never>());

/** A reverse proxy without upstreams. */
export const defaultReverseProxy: ReverseProxyConfig = {
  kind: 'reverse_proxy',
  upstreams: [],
  ...defaultsOf(proxyMembers(none, none)),
};
