import type {
  AccessLogConfig,
  AcmeIssuerConfig,
  ChangesConfig,
  DiscoveryConfig,
  GlobalOptions,
  HubConfig,
  JwksKeySource,
  LiveConfig,
  OutboxConfig,
  RollOptions,
  SiteConfig,
  TlsConfig,
  TokenExchangeConfig,
  TokenGrantsConfig,
  TokenMintConfig,
} from './config.ts';
import { defaultLogEncoding } from './log-encoding.ts';
import { transportKinds } from './transports.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

/** The meaning of `acme_staging` without a URL. */
export const STAGING_DIRECTORY = 'https://acme-staging-v02.api.letsencrypt.org/directory';

/** Most processes that can share the listeners. */
export const MAX_WORKERS = 256;

/** The same as in Caddy, so that an unattended log does not fill the disk. */
export const defaultRoll: RollOptions = {
  size: 100 * 1024 * 1024,
  keep: 10,
  keepForMs: 90 * DAY,
  intervalMs: 0,
};

/** The global options of a configuration that does not set any. */
export const defaultOptions: GlobalOptions = {
  admin: { host: 'localhost', port: 2029, origins: [] },
  metrics: 'off',
  httpPort: 80,
  httpsPort: 443,
  acme: {
    email: null,
    directories: ['https://acme-v02.api.letsencrypt.org/directory'],
    staging: null,
    challenges: ['tls-alpn-01', 'http-01'],
    rootFile: null,
    externalAccount: null,
    dns: null,
  },
  onDemand: null,
  localCerts: false,
  skipInstallTrust: false,
  autoHttps: 'on',
  storage: null,
  gracePeriodMs: 30 * SECOND,
  workers: null,
  log: {
    level: 'info',
    format: 'auto',
    encoding: defaultLogEncoding,
    output: 'stderr',
    roll: defaultRoll,
    mode: '0600',
    exclude: [],
  },
  requestLogs: [],
  trace: { enabled: true, otlp: null },
  hiddenFiles: [],
  servers: {
    trustedProxies: [],
    clientIpHeaders: ['x-forwarded-for'],
    protocols: ['h1', 'h2'],
    // Enough for a 64 KiB token and the other fields.
    maxHeaderSize: 80 * 1024,
    timeouts: { readHeaderMs: 10 * SECOND, readBodyMs: MINUTE, idleMs: 2 * MINUTE },
    forwardRawPath: false,
    underscoresInHeaders: false,
    proxyProtocol: [],
    logCredentials: false,
    maxConnections: 0,
    maxConnectionsPerClient: 0,
  },
  listeners: [],
};

/** No limit on the number of orders. */
export const defaultOnDemand = { intervalMs: 0, burst: 1 } as const;

/** An authority with the settings of the global options. */
export const defaultAcmeIssuer: Omit<AcmeIssuerConfig, 'kind'> = {
  directory: null,
  email: null,
  rootFile: null,
  externalAccount: null,
  challenges: null,
  dns: null,
};

export const defaultTls: TlsConfig = {
  source: { kind: 'auto' },
  onDemand: false,
  dns: null,
  minVersion: 'TLSv1.2',
  maxVersion: 'TLSv1.3',
  ciphers: [],
  curves: [],
  alpn: [],
  clientAuth: null,
};

/** A site without addresses and functions. */
export const defaultSite: SiteConfig = {
  addresses: [],
  bind: [],
  tls: defaultTls,
  hub: null,
  moreHubs: [],
  discovery: null,
  routes: [],
  errorRoutes: [],
  accessLogs: [],
};

export const defaultAccessLog: AccessLogConfig = {
  name: null,
  hosts: [],
  onlyNamed: false,
  level: 'info',
  output: null,
  format: 'auto',
  encoding: defaultLogEncoding,
  roll: defaultRoll,
  mode: '0600',
};

/** A hub with an empty block; it still lacks an issuer. */
export const defaultHub: HubConfig = {
  profile: 'hub',
  path: null,
  detailType: null,
  name: 'default',
  issuers: [],
  anonymous: false,
  subscriptions: false,
  cookieName: null,
  corsOrigins: [],
  publishOrigins: [],
  publicUrls: [],
  resourceIdentifier: null,
  heartbeatMs: 40 * SECOND,
  writeTimeoutMs: 10 * MINUTE,
  dispatchTimeoutMs: 5 * SECOND,
  maxRequestBodySize: 1024 * 1024,
  maxConnections: 0,
  maxConnectionsPerClient: 0,
  maxSubscriberBuffer: 1024 * 1024,
  maxPatternSize: 10_000,
  transport: transportKinds.lmdb.defaults,
  outbox: null,
  topicMatcherCache: 100_000,
  subscriberListCacheSize: 100_000,
  debugger: false,
  playground: false,
  playgroundInsecure: false,
  protocolVersionCompatibility: null,
  legacyForms: { strings: false, topics: false, templates: false },
  legacy: { publisher: null, subscriber: null },
};

export const defaultJwks: Omit<JwksKeySource, 'uri'> = {
  kind: 'jwks',
  algorithms: [],
  refreshMs: 10 * MINUTE,
  cooldownMs: 30 * SECOND,
  timeoutMs: 5 * SECOND,
};

/** The discovery of every proxied response on a site with a hub. */
export const defaultDiscovery: DiscoveryConfig = {
  matcher: null,
  hub: null,
  link: true,
  self: false,
  contentType: null,
  type: null,
  lastEventId: true,
  cookie: { fromHeader: 'Hub-Access-Token', sameSite: 'Strict', domain: null },
  expire: { statuses: [], paths: [] },
  tokenSource: null,
  publish: true,
  changes: [],
  aliases: [],
  live: null,
};

export const defaultOutbox: Omit<OutboxConfig, 'url'> = {
  passwordFile: null,
  trustPoolFile: null,
  table: 'hub_outbox',
  topics: [],
  origins: [],
};

/** What a response to an unsafe method invalidates (RFC 9111 §4.4). */
export const defaultChanges: ChangesConfig = {
  matcher: null,
  methods: ['POST', 'PUT', 'PATCH', 'DELETE'],
  topics: [
    '{request.uri.without_query}',
    '{http.response.location}',
    '{http.response.content_location}',
    '{http.response.canonical}',
  ],
  also: [],
  alsoFor: [],
  visibility: null,
  data: 'change',
  windowMs: 250,
  mode: 'async',
  watchMs: null,
  ignore: [],
};

export const defaultLive: LiveConfig = {
  matcher: null,
  windowMs: SECOND,
  report: false,
  notice: null,
  noticeStyle: null,
};

const noGrants: TokenGrantsConfig = {
  subscribe: [],
  subscribeUrlPattern: [],
  publish: [],
  publishUrlPattern: [],
  payload: null,
  keepFields: false,
};

export const defaultTokenMint: Omit<TokenMintConfig, 'issuer' | 'key'> = {
  kind: 'mint',
  algorithm: null,
  keyId: null,
  ttlMs: 15 * MINUTE,
  ...noGrants,
};

export const defaultTokenExchange: Omit<
  TokenExchangeConfig,
  'endpoint' | 'clientId' | 'clientSecret'
> = { kind: 'exchange', subjectToken: null, ...noGrants };
