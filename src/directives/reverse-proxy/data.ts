import type { HeaderOperation, RouteConfig } from '../../config/config.ts';
import type { HandlerData } from '../../config/handler-data.ts';
import type { Report } from '../../config/problem.ts';
import { identityFieldsIn } from '../../config/identity-operations.ts';
import { byKind, list, nullable, object, type Shape } from '../../config/shape.ts';
import { anyHeaderOperations, field } from '../../config/shape-header.ts';
import { addressRange, headerName } from '../../config/shape-options.ts';
import { count, duration, flag, name, oneOf, secret, text } from '../../config/shape-values.ts';
import { isHeaderName, isStatusPattern } from '../../config/well-formed.ts';
import { parseUrl } from '../../kernel/parse-url.ts';
import type { Secret } from '../../kernel/secret.ts';
import { dynamic, type DynamicConfig } from './data/dynamic.ts';

/** How much more than another an upstream may be given. */
export const MAX_WEIGHT = 10_000;

const SECOND = 1000;
const MINUTE = 60 * SECOND;

export interface ReverseProxyConfig {
  readonly kind: 'reverse_proxy';
  /** Absolute origins: `http://`, `https://` or `h2c://host:port`, `unix:/path` or `unix+h2c:/path`. */
  readonly upstreams: readonly string[];
  /** Upstreams that the DNS names; `upstreams` stand in while it names none. */
  readonly dynamic: DynamicConfig | null;
  readonly loadBalancing: {
    readonly policy: BalancingPolicy;
    /** Total time for tries on other upstreams; 0 means one try per upstream is not repeated. */
    readonly tryDurationMs: number;
    readonly tryIntervalMs: number;
    /** Tries after the first that one request gets at most; null: only the time limits them. */
    readonly retries: number | null;
  };
  readonly activeHealth: {
    readonly uri: string;
    readonly port: number | null;
    readonly intervalMs: number;
    readonly timeoutMs: number;
    /** `200`, or a class such as `2xx`. */
    readonly status: string;
    readonly headers: readonly { readonly name: string; readonly value: string }[];
    readonly method: string;
    /** What the first 64 KiB of the answer must match, in RE2 syntax; null: anything will do. */
    readonly body: { readonly pattern: string } | null;
    /** Bad answers in a row that take an upstream out, and good ones that bring it back. */
    readonly fails: number;
    readonly passes: number;
  } | null;
  readonly passiveHealth: {
    /** How long a failure counts; 0 turns passive checks off. */
    readonly failDurationMs: number;
    readonly maxFails: number;
    /** Statuses, or classes such as `5xx`, that count as failures. */
    readonly unhealthyStatus: readonly string[];
    /** 0 means latency does not count. */
    readonly unhealthyLatencyMs: number;
    /** Requests at once beyond which an upstream counts as unhealthy; 0 means no limit. */
    readonly unhealthyRequestCount: number;
  };
  /** What upstreams are asked instead of the client's method; with GET and HEAD they get no body. */
  readonly method: string | null;
  /** The target that upstreams are asked for instead, with placeholders, as in `rewrite`. */
  readonly rewrite: string | null;
  readonly headerUp: readonly HeaderOperation[];
  readonly headerDown: readonly HeaderOperation[];
  /** Accepted for Caddy's sake: responses are always flushed as they come. */
  readonly flushIntervalMs: number;
  /** Longest life of an upgraded connection; 0 means no limit. */
  readonly streamTimeoutMs: number;
  /** How long upgraded connections outlive the configuration that opened them; 0 means for ever. */
  readonly streamCloseDelayMs: number;
  readonly trustedProxies: readonly string[];
  readonly transport: {
    readonly dialTimeoutMs: number;
    /** 0 means no limit, here and below. */
    readonly responseHeaderTimeoutMs: number;
    readonly readTimeoutMs: number;
    readonly writeTimeoutMs: number;
    /** How long an idle connection is kept; 0 closes it after each exchange. */
    readonly keepAliveMs: number;
    /** Sessions of HTTP/2 count as connections; 0 means 100 of them. */
    readonly maxConnectionsPerHost: number;
    /** What is offered to upstreams behind TLS; to `h2c://` HTTP/2 alone is spoken. */
    readonly versions: readonly HttpVersion[];
    readonly tlsInsecureSkipVerify: boolean;
    readonly tlsServerName: string | null;
    readonly tlsTrustPoolFile: string | null;
  };
  /** How a server of scripts is spoken to; null: by HTTP. */
  readonly fastcgi: FastcgiConfig | null;
  readonly handleResponse: readonly {
    /** Statuses or classes; empty means any. */
    readonly status: readonly string[];
    readonly header: { readonly name: string; readonly value: string } | null;
    /** What the status becomes while the response passes; null: the routes answer instead. */
    readonly replaceStatus: number | null;
    readonly routes: readonly RouteConfig[];
  }[];
}

export type HttpVersion = '1.1' | '2';

export interface FastcgiConfig {
  /** The site's files as the server of scripts sees them; null: the `root` of the site. */
  readonly root: string | null;
  /** Ends of the names of scripts; what follows one in a path is `PATH_INFO`. */
  readonly splitPath: readonly string[];
  /** Further parameters, with placeholders. */
  readonly env: readonly { readonly name: string; readonly value: string }[];
}

export const defaultFastcgi: FastcgiConfig = { root: null, splitPath: [], env: [] };

/** What a parameter of a script may be called. */
export function isParameterName(name: string): boolean {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name);
}

export type BalancingPolicy =
  | { readonly kind: 'random' | 'round_robin' | 'least_conn' | 'first' }
  | { readonly kind: 'ip_hash' | 'client_ip_hash' | 'uri_hash' }
  | { readonly kind: 'weighted_round_robin'; readonly weights: readonly number[] }
  | { readonly kind: 'random_choose'; readonly choices: number }
  | { readonly kind: 'header' | 'query'; readonly name: string }
  | { readonly kind: 'cookie'; readonly name: string; readonly secret: Secret | null };

/** A reverse proxy without upstreams. */
export const defaultReverseProxy: ReverseProxyConfig = {
  kind: 'reverse_proxy',
  upstreams: [],
  dynamic: null,
  loadBalancing: {
    policy: { kind: 'random' },
    tryDurationMs: 0,
    tryIntervalMs: 250,
    retries: null,
  },
  activeHealth: null,
  passiveHealth: {
    failDurationMs: 0,
    maxFails: 1,
    unhealthyStatus: [],
    unhealthyLatencyMs: 0,
    unhealthyRequestCount: 0,
  },
  method: null,
  rewrite: null,
  headerUp: [],
  headerDown: [],
  flushIntervalMs: 0,
  streamTimeoutMs: 0,
  streamCloseDelayMs: 0,
  trustedProxies: [],
  transport: {
    dialTimeoutMs: 3 * SECOND,
    responseHeaderTimeoutMs: 0,
    readTimeoutMs: 0,
    writeTimeoutMs: 0,
    keepAliveMs: 2 * MINUTE,
    maxConnectionsPerHost: 0,
    versions: ['1.1'],
    tlsInsecureSkipVerify: false,
    tlsServerName: null,
    tlsTrustPoolFile: null,
  },
  fastcgi: null,
  handleResponse: [],
};

export const defaultActiveHealth: NonNullable<ReverseProxyConfig['activeHealth']> = {
  uri: '/',
  port: null,
  intervalMs: 30 * SECOND,
  timeoutMs: 5 * SECOND,
  status: '2xx',
  headers: [],
  method: 'GET',
  body: null,
  fails: 1,
  passes: 1,
};

const statuses = list(text('a status such as 404 or 5xx', isStatusPattern));
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
    tlsServerName: nullable(name('a host name')),
    tlsTrustPoolFile: nullable(name('a PEM file')),
  },
  defaultReverseProxy.transport,
);

const fastcgi = object<FastcgiConfig>(
  {
    root: nullable(name('a directory')),
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
  patterns: ({ headerUp, headerDown, activeHealth: check }) => [
    ...[...headerUp, ...headerDown],
    ...(check === null || check.body === null ? [] : [check.body]),
  ],
  responseFields: ({ headerDown }) => headerDown,
  writesIdentity: ({ headerUp }) => identityFieldsIn(headerUp),
  files: ({ transport: about }) => {
    const path = about.tlsTrustPoolFile;
    return path === null ? [] : [{ about, field: 'tlsTrustPoolFile', path, holds: 'roots' }];
  },
  upstreams: (about) => about.upstreams.map((upstream) => ({ about, upstream })),
  check: checkUpstreams,
};

function reverseProxyShape(
  routes: Shape<readonly RouteConfig[]>,
): Shape<Omit<ReverseProxyConfig, 'kind'>> {
  return object(
    {
      upstreams: list(name('an upstream such as http://localhost:3000')),
      dynamic: nullable(dynamic),
      loadBalancing: object<ReverseProxyConfig['loadBalancing']>(
        {
          policy,
          tryDurationMs: duration(),
          tryIntervalMs: duration(),
          retries: nullable(count()),
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
      rewrite: nullable(text('a path or a query', (to) => /^[/?{]/.test(to))),
      headerUp: anyHeaderOperations,
      headerDown: anyHeaderOperations,
      // -1 is Caddy's "at once", which is how it always is.
      flushIntervalMs: duration({ min: -1 }),
      streamTimeoutMs: duration(),
      streamCloseDelayMs: duration(),
      trustedProxies: list(addressRange),
      transport,
      fastcgi: nullable(fastcgi),
      handleResponse: list(
        object<ReverseProxyConfig['handleResponse'][number]>(
          {
            status: statuses,
            header: nullable(field),
            replaceStatus: nullable(count({ min: 200, max: 599 })),
            routes,
          },
          { status: [], header: null, replaceStatus: null, routes: [] },
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

/** What a placeholder brought into an upstream must still be an origin. */
function checkUpstreams(proxy: ReverseProxyConfig, report: Report): void {
  if (proxy.fastcgi !== null) checkFastcgi(proxy, report);
  checkWeights(proxy, report);
  if (proxy.dynamic !== null) checkDynamic(proxy, report);
  else if (proxy.upstreams.length === 0) {
    const message = 'reverse_proxy needs an upstream';
    const hint = 'for example http://localhost:3000';
    report(proxy, { severity: 'error', code: 'expected-argument', message, hint });
  }
  const { versions } = proxy.transport;
  if (!versions.includes('1.1') && isCleartext(proxy)) {
    const message = 'without TLS, HTTP/2 cannot be negotiated';
    const hint = 'write h2c://host:port, or versions h2c';
    report(proxy.transport, { severity: 'error', code: 'bad-upstream', message, hint });
  }
  for (const upstream of proxy.upstreams) {
    if (isUpstream(upstream)) continue;
    const message = `the upstream "${upstream.slice(0, 80)}" is not http://host:port`;
    const hint = 'a placeholder stands for host or host:port; use {$VAR} for a whole URL';
    report(proxy, { severity: 'error', code: 'bad-upstream', message, hint });
  }
}

function isCleartext({ upstreams, dynamic: named }: ReverseProxyConfig): boolean {
  return named?.scheme === 'http' || upstreams.some((one) => /^(http|unix):/.test(one));
}

/** What cannot be, where upstreams come and go; each where it is written, as the rest may stay. */
function checkDynamic(proxy: ReverseProxyConfig, report: Report): void {
  const { dynamic: about, activeHealth, fastcgi } = proxy;
  if (about === null) return;
  if (activeHealth !== null) {
    const message = 'upstreams that the DNS names are not checked by health_uri';
    const hint = 'use fail_duration and max_fails, or have the DNS name only those that are well';
    const problem = { severity: 'error', code: 'not-dynamic', message, hint } as const;
    report(proxy, problem, { field: 'activeHealth' });
  }
  if (fastcgi !== null && about.scheme !== 'http') {
    const message = `FastCGI is not spoken by ${about.scheme}`;
    const hint = 'drop the options of the transport';
    report(about, { severity: 'error', code: 'not-dynamic', message, hint });
  }
}

function checkWeights(proxy: ReverseProxyConfig, report: Report): void {
  const { upstreams, dynamic: named, loadBalancing: about } = proxy;
  if (about.policy.kind !== 'weighted_round_robin') return;
  const { weights } = about.policy;
  const found = (message: string, hint: string): void =>
    report(about, { severity: 'error', code: 'bad-weights', message, hint }, { field: 'policy' });
  if (named !== null) {
    found('nobody knows whom weights are for where the DNS names upstreams', 'use least_conn');
  } else if (weights.length !== upstreams.length) {
    const message = `${weights.length} weights are given for ${upstreams.length} upstreams`;
    found(message, 'write one for each, in their order; ports of a range count one by one');
  } else if (weights.every((weight) => weight === 0)) {
    found('no upstream has a weight above 0', 'write 1 for those that are to be used');
  }
}

/** What is spoken by HTTP only. */
function checkFastcgi(proxy: ReverseProxyConfig, report: Report): void {
  const { upstreams, activeHealth } = proxy;
  const about = upstreams;
  const found = (message: string, hint: string): void =>
    report(about, { severity: 'error', code: 'not-by-fastcgi', message, hint });
  if (activeHealth !== null) {
    found('health checks are made by HTTP only', 'use fail_duration and max_fails instead');
  }
  if (proxy.rewrite !== null || proxy.method !== null) {
    found(
      'what scripts are asked is not changed on the way',
      'use rewrite before, or a site in front',
    );
  }
  if (upstreams.some((upstream) => upstream.startsWith('https:'))) {
    found('FastCGI is not spoken over TLS', 'use a socket, or a port of this host');
  }
  if (upstreams.some((upstream) => /^(unix\+)?h2c:/.test(upstream))) {
    found('FastCGI is no HTTP/2', 'write host:port, or unix//path');
  }
}

function isUpstream(text: string): boolean {
  if (/^unix(\+h2c)?:\/./.test(text)) return true;
  const url = parseUrl(text.startsWith('h2c:') ? text.replace('h2c', 'http') : text);
  if (url === null) return false;
  const { protocol, username, pathname, search, hash } = url;
  const isHttp = protocol === 'http:' || protocol === 'https:';
  return isHttp && username === '' && pathname === '/' && search === '' && hash === '';
}
