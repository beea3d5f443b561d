import type { Secret } from '../kernel/secret.ts';
import type { DnsChallengeConfig } from './dns-challenge.ts';
import type { LogEncoding, LogFormat } from './log-encoding.ts';
import type { RequestMatcher, RouteConfig } from './routes.ts';
import type { TransportConfig } from './transports.ts';

/**
 * The configuration of a gateway: plain read-only data, the same whether it was written as a Hubfile, as YAML
 * or JSON, or by a program. Strings may contain `{env.X}` and `{file.X}` until `resolvePlaceholders` has run,
 * and request placeholders such as `{host}` permanently. Durations are in milliseconds, sizes in bytes. 0
 * means "no limit" if the field says so.
 */
export interface Config {
  readonly options: GlobalOptions;
  readonly sites: readonly SiteConfig[];
}

export interface GlobalOptions {
  /** Address of the admin API, or `off`. */
  readonly admin: AdminOptions | 'off';
  /**
   * Where metrics and health, and nothing else, are served: any client can reach it. An empty host stands for all
   * interfaces.
   */
  readonly metrics: ListenAddress | 'off';
  readonly httpPort: number;
  readonly httpsPort: number;
  readonly acme: AcmeOptions;
  /** The service that decides which names `on_demand` sites may have; null: none are allowed. */
  readonly onDemand: OnDemandOptions | null;
  /** Whether every site gets a certificate of the local authority. */
  readonly localCerts: boolean;
  readonly skipInstallTrust: boolean;
  readonly autoHttps: 'on' | 'off' | 'disable_redirects';
  /** Directory of certificates, keys and history; null means the platform's default. */
  readonly storage: string | null;
  readonly gracePeriodMs: number;
  /**
   * Processes that share the listeners; `auto`: one for each processor; null: one, or several where the machine
   * has the processors and the memory, and nothing of the configuration belongs to one process.
   */
  readonly workers: number | 'auto' | null;
  readonly log: GatewayLogOptions;
  readonly requestLogs: readonly RequestLogOptions[];
  readonly trace: TraceOptions;
  /**
   * Files that no site serves, wherever they are. The files of the configuration are added when it is loaded.
   */
  readonly hiddenFiles: readonly string[];
  readonly servers: ServerOptions;
  /** Options of single listeners, which replace `servers`. */
  readonly listeners: readonly ListenerServerOptions[];
}

export type AdminOptions = (ListenAddress | { readonly socket: UnixAddress }) & {
  /**
   * Further hosts with which it may be addressed, in lower case; without a port, any port is accepted. A Unix
   * socket accepts any host if there are none.
   */
  readonly origins: readonly string[];
};

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

export interface AcmeOptions {
  readonly email: string | null;
  /** Directory URLs in the order of the attempts. */
  readonly directories: readonly string[];
  /** Directory URL of an authority for a dry run before these; null for none. */
  readonly staging: string | null;
  /** Ways to prove control of a name, in the order of the attempts. */
  readonly challenges: readonly ('tls-alpn-01' | 'http-01')[];
  /** PEM file of a private directory's root. */
  readonly rootFile: string | null;
  readonly externalAccount: { readonly keyId: string; readonly macKey: Secret } | null;
  /** How names, including wildcards, are proven with DNS instead; null: with `challenges`. */
  readonly dns: DnsChallengeConfig | null;
}

export interface OnDemandOptions {
  /** URL that is requested with `?domain=<name>`: 2xx allows the name. */
  readonly ask: string;
  /** At most `burst` orders begin within this time; 0: no limit. */
  readonly intervalMs: number;
  readonly burst: number;
}

export interface LogOptions {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly format: LogFormat;
  readonly encoding: LogEncoding;
  /** `stderr`, `stdout` or the path of a file. */
  readonly output: string;
  /** When a new file is begun; null: never. */
  readonly roll: RollOptions | null;
  /** Permissions of a new file, in octal. */
  readonly mode: string;
}

/** The gateway's own log, which also has the lines of sites' logs without an output. */
interface GatewayLogOptions extends LogOptions {
  /** The sites' logs whose lines it leaves out, as in {@link RequestLogOptions}. */
  readonly exclude: readonly string[];
}

/** A log for requests of several sites, selected by the names of the sites' logs. */
export interface RequestLogOptions extends LogOptions {
  readonly name: string;
  /** `http.log.access` means all logs of sites, `http.log.access.NAME` the one with that name. */
  readonly include: readonly string[];
  readonly exclude: readonly string[];
}

/** How requests that are part of a trace are handled (W3C Trace Context). */
interface TraceOptions {
  /** Whether requests to the app get a `traceparent`, and spans are created. */
  readonly enabled: boolean;
  /** URL of a collector that receives a span for each request, over OTLP; null: none. */
  readonly otlp: string | null;
}

/** When a log file is renamed and a new one begun, and how long renamed files are kept. */
export interface RollOptions {
  /** Bytes. */
  readonly size: number;
  /** Number of rolled files that are kept. */
  readonly keep: number;
  /** 0: no limit on their age. */
  readonly keepForMs: number;
  /** 0: no limit on its age. */
  readonly intervalMs: number;
}

export interface ServerOptions {
  /** CIDR ranges whose forwarded headers are trusted. */
  readonly trustedProxies: readonly string[];
  /** Header fields, in lower case, that contain the client's address if the peer is a trusted proxy. */
  readonly clientIpHeaders: readonly string[];
  readonly protocols: readonly ('h1' | 'h2')[];
  /** Bytes of a request's header section; a 64 KiB token must fit. */
  readonly maxHeaderSize: number;
  readonly timeouts: {
    /** Time for the header section of a request, and for a PROXY protocol header; 0 means no limit. */
    readonly readHeaderMs: number;
    /** Longest silence while a body is read; 0 means no limit. */
    readonly readBodyMs: number;
    /** How long a keep-alive connection may wait for a request. */
    readonly idleMs: number;
  };
  /** Whether upstreams get the path as the client spelled it, instead of the one that matchers use. */
  readonly forwardRawPath: boolean;
  /** Whether fields with `_` in their names stay in requests. */
  readonly underscoresInHeaders: boolean;
  /** CIDR ranges of peers that must send a PROXY protocol header. */
  readonly proxyProtocol: readonly string[];
  /** Whether access logs contain credentials in header fields in clear. */
  readonly logCredentials: boolean;
  /** Open connections of each listener; 0 means no limit, here and below. */
  readonly maxConnections: number;
  /** Open connections of one client address to each listener. */
  readonly maxConnectionsPerClient: number;
}

/** The options of one listener. The general `servers` options do not apply to it. */
export interface ListenerServerOptions extends ListenAddress {
  /** In the format of `bind`; empty: all interfaces. */
  readonly host: string;
  readonly servers: ServerOptions;
}

export interface SiteConfig {
  readonly addresses: readonly SiteAddress[];
  /** Addresses to listen on; empty means all interfaces. */
  readonly bind: readonly BindAddress[];
  readonly tls: TlsConfig;
  readonly hub: HubConfig | null;
  /** Further hubs, each with its own `name`. Only allowed together with `hub`. */
  readonly moreHubs: readonly HubConfig[];
  readonly discovery: DiscoveryConfig | null;
  /** Everything else, in the order of execution; `{ kind: 'hub' }` marks the position of a hub. */
  readonly routes: readonly RouteConfig[];
  /** Routes for the response when a handler fails, instead of the plain error response. */
  readonly errorRoutes: readonly RouteConfig[];
  /** Where requests are logged. Each log has its own lines. */
  readonly accessLogs: readonly AccessLogConfig[];
}

export type BindAddress =
  /** An interface of this machine, by its address or name. The port is that of the site's address. */
  | { readonly kind: 'host'; readonly host: string }
  /** A Unix socket. It serves all addresses of the site, whatever their port. */
  | { readonly kind: 'unix'; readonly path: string; readonly mode: number }
  /** A listening socket that the parent process has opened. It serves all addresses as well. */
  | { readonly kind: 'fd'; readonly fd: number };

export type UnixAddress = Extract<BindAddress, { readonly kind: 'unix' }>;

export interface SiteAddress {
  readonly scheme: 'http' | 'https';
  /** Lower case; `*.example.com` for one label, empty for any host. IPv6 without brackets. */
  readonly host: string;
  /** null: the port for the scheme in the global options. */
  readonly port: number | null;
}

/** Successful requests have the level `info`, requests with a 5xx response `error`. */
export interface AccessLogConfig extends Omit<LogOptions, 'output'> {
  /** The name for `log_name` and for the logs of the global options; null for the log without a name. */
  readonly name: string | null;
  /** Logs requests for these hosts only; empty: for all hosts. */
  readonly hosts: readonly string[];
  /** Whether only requests that `log_name` assigns to it are logged. */
  readonly onlyNamed: boolean;
  /** null: the output of the gateway's own log. */
  readonly output: string | null;
}

/** The issuer of a certificate. */
export type CertificateIssuer = AcmeIssuerConfig | { readonly kind: 'internal' };

/** An ACME authority. null means the setting of the global options. */
export interface AcmeIssuerConfig
  extends Pick<AcmeOptions, 'email' | 'rootFile' | 'externalAccount' | 'dns'> {
  readonly kind: 'acme';
  /** URL of the directory, to which the key of an external account belongs. */
  readonly directory: string | null;
  readonly challenges: AcmeOptions['challenges'] | null;
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
  /** Whether certificates are obtained for the names that clients ask for, if `onDemand` allows them. */
  readonly onDemand: boolean;
  /** How ACME proves the names of this site; null: the setting of the global options. */
  readonly dns: DnsChallengeConfig | null;
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  readonly maxVersion: 'TLSv1.2' | 'TLSv1.3';
  /** OpenSSL names; empty means the default set. */
  readonly ciphers: readonly string[];
  readonly curves: readonly string[];
  /** `h2` or `http/1.1`, the preferred one first; empty: those of the listener. */
  readonly alpn: readonly ('h2' | 'http/1.1')[];
  readonly clientAuth: {
    readonly mode: 'request' | 'require' | 'verify_if_given' | 'require_and_verify';
    readonly trustPoolFiles: readonly string[];
  } | null;
}

type ProfileName = 'hub' | 'mercure';

export interface HubConfig {
  readonly profile: ProfileName;
  /** Path of the hub; null means that of the profile. */
  readonly path: string | null;
  /** `type` of the hub's authorization details; null means that of the profile. */
  readonly detailType: string | null;
  /** Name in health paths. */
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
  /** 0 disables heartbeats. */
  readonly heartbeatMs: number;
  /** 0 lets a stream live until its token expires. */
  readonly writeTimeoutMs: number;
  /** 0 lets a client read nothing for any time. */
  readonly dispatchTimeoutMs: number;
  /** 0 means no limit. */
  readonly maxRequestBodySize: number;
  /** 0 means no limit. */
  readonly maxConnections: number;
  /** 0 means no limit. */
  readonly maxConnectionsPerClient: number;
  readonly maxSubscriberBuffer: number;
  /** Most instructions of all URL Patterns of one subscription. */
  readonly maxPatternSize: number;
  readonly transport: TransportConfig;
  /** A table of the app whose rows become updates; null for none. */
  readonly outbox: OutboxConfig | null;
  /** Number of entries; 0 or less disables the cache. */
  readonly topicMatcherCache: number;
  readonly subscriberListCacheSize: number;
  readonly debugger: boolean;
  readonly playground: boolean;
  /** Whether the playground may run on a site with a public name. */
  readonly playgroundInsecure: boolean;
  readonly protocolVersionCompatibility: 7 | 8 | null;
  /** Further forms of 0.x that are accepted; only with `protocolVersionCompatibility`. */
  readonly legacyForms: LegacyForms;
  /** The verifiers of the 0.x directives; only with `protocolVersionCompatibility`. */
  readonly legacy: { readonly publisher: KeySource | null; readonly subscriber: KeySource | null };
}

/** A table in PostgreSQL in which an app publishes as a part of its transactions. */
export interface OutboxConfig {
  /** `postgres://` or `postgresql://`, possibly with several hosts. */
  readonly url: Secret;
  /** File with the password, read for each connection; null if the URL has it, or none is needed. */
  readonly passwordFile: string | null;
  /** PEM file of the authorities that the server is verified with; null for those of the system. */
  readonly trustPoolFile: string | null;
  /** Possibly with its schema. */
  readonly table: string;
  /** Topics and URL Patterns that rows may have; empty for any. */
  readonly topics: readonly string[];
  /** Origins of topics that begin with "/"; empty for those of the site's addresses. */
  readonly origins: readonly string[];
}

/** Forms of 0.x that 1.0 has removed. Each is switched on by its name, because it accepts more than 1.0. */
export interface LegacyForms {
  /** Grants that are plain strings in the claim of a token. */
  readonly strings: boolean;
  /** `topic=` in the query of a subscription. */
  readonly topics: boolean;
  /** Whether those two can be URI Templates (RFC 6570). */
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
  /** null: HS256 for a raw secret; a PEM key requires an algorithm. */
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
   * Address of the site whose hub is announced, URL of a hub, path of a hub of this site, or null for this
   * site's first hub.
   */
  readonly hub: string | null;
  readonly link: boolean;
  readonly self: boolean;
  readonly contentType: string | null;
  readonly type: string | null;
  readonly lastEventId: boolean;
  readonly cookie: {
    /** Response header of the app that contains the token. */
    readonly fromHeader: string;
    readonly sameSite: 'Strict' | 'Lax';
    readonly domain: string | null;
  };
  /** Responses of the app that mean that the user has logged out, in addition to an empty token header. */
  readonly expire: {
    readonly statuses: readonly number[];
    /** Paths for which a response below 400 has this meaning. */
    readonly paths: readonly string[];
  };
  readonly tokenSource: TokenMintConfig | TokenExchangeConfig | null;
  /** Whether the app may publish with the fields `Hub-Publish` and `Hub-Data` of its responses. */
  readonly publish: boolean;
  /** Announces the changes of requests (RFC 9111 §4.4). The first entry that applies is used. */
  readonly changes: readonly ChangesConfig[];
  /** Pages with several URLs. The first entry that matches a URL is used. */
  readonly aliases: readonly AliasConfig[];
  /** Inserts into pages the script that makes them follow their changes; null does not. */
  readonly live: LiveConfig | null;
}

/** Which responses mean a change, and what is published then. */
export interface ChangesConfig {
  /** The requests that it applies to; null: all that discovery applies to. */
  readonly matcher: RequestMatcher | null;
  readonly methods: readonly string[];
  /** Templates with placeholders. Each result is resolved against the URL of the request. */
  readonly topics: readonly string[];
  /** Further topics, in the same format, such as the collection that an item belongs to. */
  readonly also: readonly string[];
  /** Further topics for some requests only. */
  readonly alsoFor: readonly AlsoConfig[];
  /** null: private if the request has credentials, otherwise public. */
  readonly visibility: 'public' | 'private' | null;
  /** The data of an update: URL and method, nothing, or the body of the response if it is JSON. */
  readonly data: 'change' | 'none' | 'body';
  /** Changes of one topic within this time become one update; 0: each is an update of its own. */
  readonly windowMs: number;
  /** `sync`: the client gets its response when the update is stored. */
  readonly mode: 'sync' | 'async';
  /** The interval at which followed pages are asked for; null: they are not. */
  readonly watchMs: number | null;
  /** Regular expressions for the parts of a watched page that do not count. */
  readonly ignore: readonly string[];
}

/** Each form is a path with `{name}` in it, and a query with the parameters that identify the page. */
export interface AliasConfig {
  /** The topic of these pages. */
  readonly topic: string;
  /** Other forms of their URLs. */
  readonly forms: readonly string[];
}

export interface AlsoConfig {
  readonly matcher: RequestMatcher | null;
  readonly topics: readonly string[];
}

export interface LiveConfig {
  /** The pages that it applies to; null: all that discovery applies to. */
  readonly matcher: RequestMatcher | null;
  /** For how long one response serves all clients that fetch a public page because of the same update. */
  readonly windowMs: number;
  /** Whether pages report that part of an update is withheld from them. */
  readonly report: boolean;
  /** The text of the button that offers to load a page again; null: the script's own. */
  readonly notice: string | null;
  /** CSS declarations for this button; null: the script's own. */
  readonly noticeStyle: string | null;
}

/** The grants of a token; every text may contain placeholders. */
export interface TokenGrantsConfig {
  readonly subscribe: readonly string[];
  readonly subscribeUrlPattern: readonly string[];
  readonly publish: readonly string[];
  readonly publishUrlPattern: readonly string[];
  /** JSON text. */
  readonly payload: string | null;
  /** Whether the response fields that these texts use are forwarded to the client. */
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
  /** Text with placeholders; null uses client credentials with authorization details (RFC 9396). */
  readonly subjectToken: string | null;
}
