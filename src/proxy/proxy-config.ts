import type { ResponseMatcher } from '../config/shape-routes.ts';
import type { HeaderOperation, RouteConfig, RequestMatcher } from '../config/routes.ts';
import type { Secret } from '../kernel/secret.ts';

/** Largest ratio of the weights of two upstreams. */
export const MAX_WEIGHT = 10_000;

const SECOND = 1000;
const MINUTE = 60 * SECOND;

export interface ReverseProxyConfig {
  readonly kind: 'reverse_proxy';
  /** Absolute origins: `http://`, `https://` or `h2c://host:port`, `unix:/path` or `unix+h2c:/path`. */
  readonly upstreams: readonly string[];
  /** Where placeholders in upstreams may lead: hosts, `*.domain`, either with a port, and address ranges. */
  readonly upstreamsAllow: readonly string[];
  /** Upstreams from the DNS; `upstreams` are used while it returns none. */
  readonly dynamic: DynamicConfig | null;
  readonly loadBalancing: {
    readonly policy: BalancingPolicy;
    /** Total time for attempts with other upstreams; 0 means one attempt per upstream, without repetition. */
    readonly tryDurationMs: number;
    readonly tryIntervalMs: number;
    /** Most further attempts of one request after the first; null: limited only by time. */
    readonly retries: number | null;
    /** Requests that are repeated whatever their method, and no others; null: those that are safe. */
    readonly retryMatch: readonly RequestMatcher[] | null;
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
    /** Pattern that the first 64 KiB of the response must match, in RE2 syntax; null: any response. */
    readonly body: { readonly pattern: string } | null;
    /** Bad responses in a row that remove an upstream, and good ones that bring it back. */
    readonly fails: number;
    readonly passes: number;
  } | null;
  readonly passiveHealth: {
    /** How long a failure counts; 0 turns passive checks off. */
    readonly failDurationMs: number;
    readonly maxFails: number;
    /** Statuses, or classes such as `5xx`, that count as failures. */
    readonly unhealthyStatus: readonly string[];
    /** 0 means that latency does not count. */
    readonly unhealthyLatencyMs: number;
    /** Concurrent requests beyond which an upstream counts as unhealthy; 0 means no limit. */
    readonly unhealthyRequestCount: number;
  };
  /** The method of requests to upstreams, instead of the client's; with GET and HEAD, no body is sent. */
  readonly method: string | null;
  /** The target of requests to upstreams, with placeholders, as in `rewrite`. */
  readonly rewrite: string | null;
  readonly headerUp: readonly HeaderOperation[];
  readonly headerDown: readonly HeaderOperation[];
  /** Bytes of a body that are read before it is passed on; 0: it is streamed. At most {@link MAX_BUFFER}. */
  readonly requestBuffers: number;
  readonly responseBuffers: number;
  /** Accepted for compatibility with Caddy: responses are always flushed at once. */
  readonly flushIntervalMs: number;
  /** Longest life of an upgraded connection; 0 means no limit. */
  readonly streamTimeoutMs: number;
  /** How long upgraded connections outlive the configuration that opened them; 0 means no limit. */
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
    /** HTTP/2 sessions count as connections; 0 means 100 of them. */
    readonly maxConnectionsPerHost: number;
    /** Versions that are offered to upstreams behind TLS. For `h2c://`, only HTTP/2 is used. */
    readonly versions: readonly HttpVersion[];
    readonly tlsInsecureSkipVerify: boolean;
    readonly tlsServerName: string | null;
    /** Empty: the authorities of the platform. */
    readonly tlsTrustPoolFiles: readonly string[];
  };
  /** How a FastCGI server is addressed; null: with HTTP. */
  readonly fastcgi: FastcgiConfig | null;
  readonly handleResponse: readonly (ResponseMatcher & {
    /** The status that replaces the one of the response; null: the routes respond instead. */
    readonly replaceStatus: number | null;
    readonly routes: readonly RouteConfig[];
  })[];
}

type HttpVersion = '1.1' | '2';

export interface FastcgiConfig {
  /** The site's files from the view of the FastCGI server; null: the `root` of the site. */
  readonly root: string | null;
  /** Whether links in the root are followed, so that a new release has new paths of scripts. */
  readonly resolveRootSymlink: boolean;
  /** Ends of the names of scripts; the part of a path after one is `PATH_INFO`. */
  readonly splitPath: readonly string[];
  /** Further parameters, with placeholders. */
  readonly env: readonly { readonly name: string; readonly value: string }[];
}

/** The largest buffer for a body, in bytes. */
export const MAX_BUFFER = 16 * 1024 * 1024;

export const defaultFastcgi: FastcgiConfig = {
  root: null,
  resolveRootSymlink: false,
  splitPath: [],
  env: [],
};

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

/** A reverse proxy without upstreams. */
export const defaultReverseProxy: ReverseProxyConfig = {
  kind: 'reverse_proxy',
  upstreams: [],
  upstreamsAllow: [],
  dynamic: null,
  loadBalancing: {
    policy: { kind: 'random' },
    tryDurationMs: 0,
    tryIntervalMs: 250,
    retries: null,
    retryMatch: null,
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
  requestBuffers: 0,
  responseBuffers: 0,
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
    tlsTrustPoolFiles: [],
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

interface DynamicSettings {
  readonly name: string;
  readonly scheme: 'http' | 'https' | 'h2c';
  readonly refreshMs: number;
  /** Addresses of name servers, with a port unless it is 53; empty: those of the system. */
  readonly resolvers: readonly string[];
  /** Time limit for each of two attempts to reach one. */
  readonly dialTimeoutMs: number;
  /** How long the old list is kept if lookups fail; null: until one succeeds. */
  readonly graceMs: number | null;
}

export type DynamicConfig =
  | (DynamicSettings & {
      readonly kind: 'a';
      readonly port: number;
      readonly versions: readonly ('ipv4' | 'ipv6')[];
    })
  | (DynamicSettings & { readonly kind: 'srv' });

export const defaultDynamic: Omit<DynamicSettings, 'name'> = {
  scheme: 'http',
  refreshMs: 60 * SECOND,
  resolvers: [],
  dialTimeoutMs: 2 * SECOND,
  graceMs: null,
};
