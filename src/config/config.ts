import type { Secret } from '../kernel/secret.ts';
import type { DnsChallengeConfig } from './dns-challenge.ts';
import type { RequestMatcher, RouteConfig } from './routes.ts';
import type { TransportConfig } from './transports.ts';

/**
 * What a gateway is: plain readonly data, the same whether it was written as a Hubfile, as YAML or
 * JSON, or by a program. Strings may hold `{env.X}` and `{file.X}` until `resolvePlaceholders` has
 * run, and request placeholders such as `{host}` for ever. Durations are milliseconds, sizes bytes;
 * 0 means "no limit" where a field says so.
 */
export interface Config {
  readonly options: GlobalOptions;
  readonly sites: readonly SiteConfig[];
}

export interface GlobalOptions {
  /** Address of the admin API, or `off`. */
  readonly admin: AdminOptions | 'off';
  /** Where metrics and health are served, and nothing else: anyone may reach it. */
  readonly metrics: ListenAddress | 'off';
  readonly httpPort: number;
  readonly httpsPort: number;
  readonly acme: AcmeOptions;
  /** Who says which names `on_demand` sites may have; null: there are none. */
  readonly onDemand: OnDemandOptions | null;
  /** Every site gets a certificate of the local authority. */
  readonly localCerts: boolean;
  readonly skipInstallTrust: boolean;
  readonly autoHttps: 'on' | 'off' | 'disable_redirects';
  /** Directory of certificates, keys and history; null means the default of the platform. */
  readonly storage: string | null;
  readonly gracePeriodMs: number;
  /** Processes that share the listeners; `auto`: one for each processor. */
  readonly workers: number | 'auto';
  readonly log: LogOptions;
  readonly requestLogs: readonly RequestLogOptions[];
  readonly trace: TraceOptions;
  /**
   * Files that no site shows, wherever they lie. Whatever the configuration was read from is added
   * when it is loaded.
   */
  readonly hiddenFiles: readonly string[];
  readonly servers: ServerOptions;
  /** Of single listeners, instead of `servers`. */
  readonly listeners: readonly ListenerServerOptions[];
}

export interface AdminOptions extends ListenAddress {
  /** Hosts by which it may be addressed beside its own, lower case, each with a port or for any. */
  readonly origins: readonly string[];
}

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

export interface AcmeOptions {
  readonly email: string | null;
  /** Directory URLs in the order in which they are tried. */
  readonly directories: readonly string[];
  /** Directory URL of an authority that is tried before these; null for none. */
  readonly staging: string | null;
  /** Ways to prove that a name is ours, in the order in which they are tried. */
  readonly challenges: readonly ('tls-alpn-01' | 'http-01')[];
  /** PEM file of a private directory's root. */
  readonly rootFile: string | null;
  readonly externalAccount: { readonly keyId: string; readonly macKey: Secret } | null;
  /** How names are proven instead, wildcards too; null: by `challenges`. */
  readonly dns: DnsChallengeConfig | null;
}

export interface OnDemandOptions {
  /** URL that is asked by `?domain=<name>`: 2xx allows it. */
  readonly ask: string;
  /** At most `burst` orders begin within this time; 0: as many as are allowed. */
  readonly intervalMs: number;
  readonly burst: number;
}

export interface LogOptions {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  /** `auto`: console on a terminal, else JSON. */
  readonly format: 'auto' | 'console' | 'json';
  /** `stderr`, `stdout` or the path of a file. */
  readonly output: string;
  /** When a file is begun again; null: never. */
  readonly roll: RollOptions | null;
  /** Permissions of a new file, in octal. */
  readonly mode: string;
}

/** A log for requests of several sites, by the names of the sites' logs. */
export interface RequestLogOptions extends LogOptions {
  readonly name: string;
  /** `http.log.access` means every log of a site, `http.log.access.NAME` that of a name. */
  readonly include: readonly string[];
  readonly exclude: readonly string[];
}

/** What becomes of the trace that a request is part of (W3C Trace Context). */
interface TraceOptions {
  /** Whether requests go on to the app with a `traceparent`, and spans are made. */
  readonly enabled: boolean;
  /** URL of a collector that gets a span of each request, by OTLP; null: none does. */
  readonly otlp: string | null;
}

/** When a log file is moved aside, and how long those that were are kept. */
export interface RollOptions {
  /** Bytes. */
  readonly size: number;
  /** Rolled files that are kept. */
  readonly keep: number;
  /** 0: however old they are. */
  readonly keepForMs: number;
  /** 0: whatever its age. */
  readonly intervalMs: number;
}

export interface ServerOptions {
  /** CIDR ranges whose forwarded headers are believed. */
  readonly trustedProxies: readonly string[];
  /** Header fields, lower case, that carry the client's address behind a trusted proxy. */
  readonly clientIpHeaders: readonly string[];
  readonly protocols: readonly ('h1' | 'h2')[];
  /** Bytes of a request's header section; a 64 KiB token must fit. */
  readonly maxHeaderSize: number;
  readonly timeouts: {
    /** For the header section of a request, and for a PROXY protocol header; 0 means no limit. */
    readonly readHeaderMs: number;
    /** Longest silence while a body is read; 0 means no limit. */
    readonly readBodyMs: number;
    /** Keep-alive without a request. */
    readonly idleMs: number;
  };
  /** Upstreams get the path as the client spelled it, not the one that matchers have seen. */
  readonly forwardRawPath: boolean;
  /** Fields with `_` in their names stay in requests. */
  readonly underscoresInHeaders: boolean;
  /** CIDR ranges from which a PROXY protocol header is required. */
  readonly proxyProtocol: readonly string[];
  /** Access logs have header fields with credentials as they are. */
  readonly logCredentials: boolean;
  /** Open connections of each listener; 0 means no limit, here and below. */
  readonly maxConnections: number;
  /** Open connections of one client address to each listener. */
  readonly maxConnectionsPerClient: number;
}

/** How one listener serves; nothing of the general `servers` is in it. */
export interface ListenerServerOptions {
  /** As in `bind`; empty: on all interfaces. */
  readonly host: string;
  readonly port: number;
  readonly servers: ServerOptions;
}

export interface SiteConfig {
  readonly addresses: readonly SiteAddress[];
  /** Where to listen; empty means on all interfaces. */
  readonly bind: readonly BindAddress[];
  readonly tls: TlsConfig;
  readonly hub: HubConfig | null;
  /** Further hubs, each with a `name` of its own; only beside `hub`. */
  readonly moreHubs: readonly HubConfig[];
  readonly discovery: DiscoveryConfig | null;
  /** Everything else in the order in which it runs; `{ kind: 'hub' }` marks a hub's place. */
  readonly routes: readonly RouteConfig[];
  /** Run instead of the plain error answer when a handler fails. */
  readonly errorRoutes: readonly RouteConfig[];
  /** Where its requests are logged; each log has the lines of its own. */
  readonly accessLogs: readonly AccessLogConfig[];
}

export type BindAddress =
  /** An interface of this machine, by its address or name; the port is that of the site's address. */
  | { readonly kind: 'host'; readonly host: string }
  /** A Unix socket; all addresses of the site are served there, whatever their port. */
  | { readonly kind: 'unix'; readonly path: string; readonly mode: number }
  /** A listening socket that whoever started the gateway has opened; likewise. */
  | { readonly kind: 'fd'; readonly fd: number };

export interface SiteAddress {
  readonly scheme: 'http' | 'https';
  /** Lower case; `*.example.com` for one label, empty for any host. IPv6 without brackets. */
  readonly host: string;
  /** null: the port of the scheme in the global options. */
  readonly port: number | null;
}

export interface AccessLogConfig {
  /** By which `log_name` and the logs of the global options know it; null for the one without a name. */
  readonly name: string | null;
  /** Requests of these hosts only; empty: of all. */
  readonly hosts: readonly string[];
  /** Only requests that `log_name` gives it. */
  readonly onlyNamed: boolean;
  /** Requests that went well are `info`, those that failed with 5xx `error`. */
  readonly level: LogOptions['level'];
  /** null: where the gateway logs. */
  readonly output: string | null;
  readonly format: 'auto' | 'console' | 'json';
  readonly roll: RollOptions | null;
  /** Permissions of a new file, in octal. */
  readonly mode: string;
}

/** Who gives a certificate. */
export type CertificateIssuer = AcmeIssuerConfig | { readonly kind: 'internal' };

/** An ACME authority; what is null is as the global options have it. */
export interface AcmeIssuerConfig {
  readonly kind: 'acme';
  /** URL of the directory; the key of an external account is for this one. */
  readonly directory: string | null;
  readonly email: string | null;
  readonly rootFile: string | null;
  readonly externalAccount: AcmeOptions['externalAccount'];
  readonly challenges: AcmeOptions['challenges'] | null;
  readonly dns: DnsChallengeConfig | null;
}

export interface TlsConfig {
  /** `auto`: ACME for public names, the local authority for local ones. */
  readonly source:
    | { readonly kind: 'auto' }
    | { readonly kind: 'internal' }
    | { readonly kind: 'acme'; readonly email: string | null }
    /** Asked one after the other; at least one. */
    | { readonly kind: 'issuers'; readonly issuers: readonly CertificateIssuer[] }
    | { readonly kind: 'files'; readonly certFile: string; readonly keyFile: string };
  /** Certificates are got for the names that clients ask for, if `onDemand` of the options allows it. */
  readonly onDemand: boolean;
  /** How ACME proves the names of this site; null: as the global options say. */
  readonly dns: DnsChallengeConfig | null;
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  readonly maxVersion: 'TLSv1.2' | 'TLSv1.3';
  /** OpenSSL names; empty means the default set. */
  readonly ciphers: readonly string[];
  readonly curves: readonly string[];
  /** Of `h2` and `http/1.1`, the preferred one first; empty: those of the listener. */
  readonly alpn: readonly ('h2' | 'http/1.1')[];
  readonly clientAuth: {
    readonly mode: 'request' | 'require' | 'verify_if_given' | 'require_and_verify';
    readonly trustPoolFile: string | null;
  } | null;
}

type ProfileName = 'hub' | 'mercure';

export interface HubConfig {
  readonly profile: ProfileName;
  /** Path of the hub; null means the profile's. */
  readonly path: string | null;
  /** `type` of the hub's authorization details; null means the profile's. */
  readonly detailType: string | null;
  /** Label in health paths. */
  readonly name: string;
  readonly issuers: readonly IssuerConfig[];
  readonly anonymous: boolean;
  readonly subscriptions: boolean;
  /** null means the profile's. */
  readonly cookieName: string | null;
  readonly corsOrigins: readonly string[];
  readonly publishOrigins: readonly string[];
  readonly publicUrls: readonly string[];
  /** The audience of every token; null derives it from each request. */
  readonly resourceIdentifier: string | null;
  /** 0 sends no heartbeat. */
  readonly heartbeatMs: number;
  /** 0 lets a stream live until its token expires. */
  readonly writeTimeoutMs: number;
  readonly dispatchTimeoutMs: number;
  /** 0 means no limit. */
  readonly maxRequestBodySize: number;
  /** 0 means no limit. */
  readonly maxConnections: number;
  /** 0 means no limit. */
  readonly maxConnectionsPerClient: number;
  readonly maxSubscriberBuffer: number;
  /** Instructions of all URL Patterns of one subscription. */
  readonly maxPatternSize: number;
  readonly transport: TransportConfig;
  /** Entries; 0 or less disables the cache. */
  readonly topicMatcherCache: number;
  readonly subscriberListCacheSize: number;
  readonly debugger: boolean;
  readonly playground: boolean;
  /** Whether the playground may run on a site with a public name. */
  readonly playgroundInsecure: boolean;
  readonly protocolVersionCompatibility: 7 | 8 | null;
  /** What else of 0.x is understood; only with `protocolVersionCompatibility`. */
  readonly legacyForms: LegacyForms;
  /** The verifiers of the 0.x directives; only with `protocolVersionCompatibility`. */
  readonly legacy: { readonly publisher: KeySource | null; readonly subscriber: KeySource | null };
}

/** What 0.x knew and 1.0 has given up, each switched on by its name: it lets more through. */
export interface LegacyForms {
  /** Grants that are bare strings in the claim of a token. */
  readonly strings: boolean;
  /** `topic=` in the query of a subscription. */
  readonly topics: boolean;
  /** Those two may be URI Templates (RFC 6570). */
  readonly templates: boolean;
}

export interface IssuerConfig {
  /** Compared byte for byte with a token's `iss`. */
  readonly id: string;
  /** Listed in the protected resource metadata (RFC 9728). */
  readonly authorizationServer: boolean;
  readonly publisher: KeySource | null;
  readonly subscriber: KeySource | null;
}

export type KeySource = StaticKeySource | JwksKeySource;

export interface StaticKeySource {
  readonly kind: 'jwt';
  /** A raw secret, or a PEM public key or certificate. */
  readonly key: Secret;
  /** null: HS256 for a raw secret; a PEM key needs one. */
  readonly algorithm: string | null;
}

export interface JwksKeySource {
  readonly kind: 'jwks';
  readonly uri: string;
  /** Empty means all asymmetric algorithms. */
  readonly algorithms: readonly string[];
  readonly refreshMs: number;
  readonly cooldownMs: number;
  readonly timeoutMs: number;
}

export interface DiscoveryConfig {
  readonly matcher: RequestMatcher | null;
  /**
   * Address of the site whose hub is announced, a hub's URL, its path where it is a hub of this site,
   * or null for this site's first one.
   */
  readonly hub: string | null;
  readonly link: boolean;
  readonly self: boolean;
  readonly contentType: string | null;
  readonly type: string | null;
  readonly lastEventId: boolean;
  readonly cookie: {
    /** Response header of the app that carries the token. */
    readonly fromHeader: string;
    readonly sameSite: 'Strict' | 'Lax';
    readonly domain: string | null;
  };
  /** Answers of the app that say that the user has logged out, beside an empty token header. */
  readonly expire: {
    readonly statuses: readonly number[];
    /** Paths of which an answer below 400 says so. */
    readonly paths: readonly string[];
  };
  readonly tokenSource: TokenMintConfig | TokenExchangeConfig | null;
  /** Whether the app may publish by the fields `Hub-Publish` and `Hub-Data` of its answers. */
  readonly publish: boolean;
  /** Announces what requests have changed (RFC 9111 §4.4); of several the first that concerns a request counts. */
  readonly changes: readonly ChangesConfig[];
  /** Pages that are known by several URLs; the first that fits a URL counts. */
  readonly aliases: readonly AliasConfig[];
  /** Puts the script into pages that makes them follow their changes; null does not. */
  readonly live: LiveConfig | null;
}

/** Which answers say that something has changed, and what is published then. */
export interface ChangesConfig {
  /** Of which requests; null: of all that discovery is for. */
  readonly matcher: RequestMatcher | null;
  readonly methods: readonly string[];
  /** Texts with placeholders; each is resolved against the URL of the request. */
  readonly topics: readonly string[];
  /** Further topics, likewise: the collection that an item belongs to. */
  readonly also: readonly string[];
  /** Further topics of some requests alone. */
  readonly alsoFor: readonly AlsoConfig[];
  /** null: private where the request carries credentials, else public. */
  readonly visibility: 'public' | 'private' | null;
  /** What an update says: URL and method, nothing, or the body of the answer when it is JSON. */
  readonly data: 'change' | 'none' | 'body';
  /** Changes of one topic within this time are one update; 0: each is one. */
  readonly windowMs: number;
  /** `sync`: the client gets its answer once the update is stored. */
  readonly mode: 'sync' | 'async';
}

/** Each is a path with `{name}` in it, and a query of the parameters that name the page. */
export interface AliasConfig {
  /** What its pages are announced and followed by. */
  readonly topic: string;
  /** How they are written besides. */
  readonly forms: readonly string[];
}

export interface AlsoConfig {
  readonly matcher: RequestMatcher | null;
  readonly topics: readonly string[];
}

export interface LiveConfig {
  /** Which pages; null: all that discovery is for. */
  readonly matcher: RequestMatcher | null;
  /** For how long one answer serves those who fetch a public page because of the same update. */
  readonly windowMs: number;
  /** Whether pages report that something is withheld from them. */
  readonly report: boolean;
  /** The text of the button that offers to load a page again; null: the script's own. */
  readonly notice: string | null;
  /** Declarations of CSS for this button; null: the script's own. */
  readonly noticeStyle: string | null;
}

/** What a token is to allow; placeholders in every text. */
export interface TokenGrantsConfig {
  readonly subscribe: readonly string[];
  readonly subscribeUrlPattern: readonly string[];
  readonly publish: readonly string[];
  readonly publishUrlPattern: readonly string[];
  /** JSON text. */
  readonly payload: string | null;
  /** Whether the fields of the response that these texts read go on to the client. */
  readonly keepFields: boolean;
}

export interface TokenMintConfig extends TokenGrantsConfig {
  readonly kind: 'mint';
  readonly issuer: string;
  readonly key: Secret;
  readonly algorithm: string | null;
  readonly keyId: string | null;
  readonly ttlMs: number;
}

export interface TokenExchangeConfig extends TokenGrantsConfig {
  readonly kind: 'exchange';
  readonly endpoint: string;
  readonly clientId: string;
  readonly clientSecret: Secret;
  /** Placeholder text; null uses client credentials with authorization details (RFC 9396). */
  readonly subjectToken: string | null;
}
