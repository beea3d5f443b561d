// The hub of a site and its discovery: their types, defaults and shapes.

import type { RequestMatcher } from './routes.ts';
import { headerName } from './shape-options.ts';
import { transportKinds, transportShape } from './transports.ts';
import {
  isChangingMethod,
  isCookieName,
  isHubPath,
  isLabel,
  isLinkAttribute,
} from './well-formed.ts';
import {
  byKind,
  defaultsOf,
  list,
  nullable,
  object,
  type Of,
  optional,
  section,
  type Shape,
  withDefault,
} from './shape.ts';
import {
  count,
  duration,
  flag,
  name,
  names,
  oneNumberOf,
  oneOf,
  secret,
  size,
  text,
} from './shape-values.ts';
import { MINUTE, SECOND } from './units.ts';

const DOMAIN = /^[a-z0-9-]+(?:\.[a-z0-9-]+)*$/;

const jwtMembers = {
  /** A raw secret, or a PEM public key or certificate. */
  key: secret,
  /** null: HS256 for a raw secret; a PEM key requires an algorithm. */
  algorithm: optional(text('an algorithm')),
};

export interface StaticKeySource extends Of<typeof jwtMembers> {
  readonly kind: 'jwt';
}

export const jwksMembers = {
  uri: name('the URL of a JWK Set'),
  /** Empty means all asymmetric algorithms. */
  algorithms: withDefault(list(name('an algorithm')), []),
  refreshMs: withDefault(duration({ min: 1 }), 10 * MINUTE),
  cooldownMs: withDefault(duration({ min: 1 }), 30 * SECOND),
  timeoutMs: withDefault(duration({ min: 1 }), 5 * SECOND),
};

export interface JwksKeySource extends Of<typeof jwksMembers> {
  readonly kind: 'jwks';
}

export const defaultJwks = { kind: 'jwks', ...defaultsOf(jwksMembers) } as const;

export type KeySource = StaticKeySource | JwksKeySource;

const keySource = byKind<KeySource>({ jwt: object(jwtMembers), jwks: object(jwksMembers) });
const keyMembers = { publisher: optional(keySource), subscriber: optional(keySource) };

const issuerMembers = {
  /** Compared byte for byte with a token's `iss`. */
  id: text('the id of an issuer'),
  /** Listed in the protected resource metadata (RFC 9728). */
  authorizationServer: withDefault(flag, false),
  ...keyMembers,
};

export interface IssuerConfig extends Of<typeof issuerMembers> {}

export const defaultIssuer = defaultsOf(issuerMembers);

export const outboxMembers = {
  /** `postgres://` or `postgresql://`, possibly with several hosts. */
  url: secret,
  /** File with the password, read for each connection; null if the URL has it, or none is needed. */
  passwordFile: optional(name('a file')),
  /** PEM file of the authorities that the server is verified with; null for those of the system. */
  trustPoolFile: optional(name('a PEM file')),
  /** Possibly with its schema. */
  table: withDefault(name('the name of a table'), 'hub_outbox'),
  /** Topics and URL Patterns that rows may have; empty for any. */
  topics: withDefault(names('a topic or a URL Pattern'), []),
  /** Origins of topics that begin with "/"; empty for those of the site's addresses. */
  origins: withDefault(names('an origin'), []),
};

/** A table in PostgreSQL in which an app publishes as a part of its transactions. */
export interface OutboxConfig extends Of<typeof outboxMembers> {}

export const defaultOutbox = defaultsOf(outboxMembers);

export const legacyFormMembers = {
  /** Grants that are plain strings in the claim of a token. */
  strings: withDefault(flag, false),
  /** `topic=` in the query of a subscription. */
  topics: withDefault(flag, false),
  /** Whether those two can be URI Templates (RFC 6570). */
  templates: withDefault(flag, false),
};

/** Forms of 0.x that 1.0 has removed. Each is switched on by its name, because it accepts more than 1.0. */
export interface LegacyForms extends Of<typeof legacyFormMembers> {}

export const hubMembers = {
  profile: withDefault(oneOf('hub', 'mercure'), 'hub'),
  /** Path of the hub; null means that of the profile. */
  path: optional(text('a path such as /.well-known/hub', isHubPath)),
  /** `type` of the hub's authorization details; null means that of the profile. */
  detailType: optional(name('a URI')),
  /** Name in health paths. */
  name: withDefault(text('a label of letters, digits, ".", "_", "~" and "-"', isLabel), 'default'),
  issuers: withDefault(list<IssuerConfig>(object(issuerMembers)), []),
  anonymous: withDefault(flag, false),
  subscriptions: withDefault(flag, false),
  /** null means the profile's. */
  cookieName: optional(text('the name of a cookie', isCookieName)),
  corsOrigins: withDefault(names('an origin'), []),
  publishOrigins: withDefault(names('an origin'), []),
  publicUrls: withDefault(names('a URL'), []),
  /** The audience of every token; null derives it from each request. */
  resourceIdentifier: optional(name('a URL')),
  /** 0 disables heartbeats. */
  heartbeatMs: withDefault(duration(), 40 * SECOND),
  /** 0 lets a stream live until its token expires. */
  writeTimeoutMs: withDefault(duration(), 10 * MINUTE),
  /** 0 lets a client read nothing for any time. */
  dispatchTimeoutMs: withDefault(duration(), 5 * SECOND),
  /** 0 means no limit. */
  maxRequestBodySize: withDefault(size(), 1024 * 1024),
  /** 0 means no limit. */
  maxConnections: withDefault(count(), 0),
  /** 0 means no limit. */
  maxConnectionsPerClient: withDefault(count(), 0),
  /** Without a limit, one stalled subscriber could use all memory. */
  maxSubscriberBuffer: withDefault(size({ min: 1 }), 1024 * 1024),
  /** Most instructions of all URL Patterns of one subscription. */
  maxPatternSize: withDefault(count({ min: 1 }), 10_000),
  transport: withDefault(transportShape, transportKinds.lmdb.defaults),
  /** A table of the app whose rows become updates; null for none. */
  outbox: optional<OutboxConfig>(object(outboxMembers)),
  /** Number of entries; 0 or less disables the cache. */
  topicMatcherCache: withDefault(count({ min: -(2 ** 31) }), 100_000),
  subscriberListCacheSize: withDefault(count(), 100_000),
  debugger: withDefault(flag, false),
  playground: withDefault(flag, false),
  /** Whether the playground may run on a site with a public name. */
  playgroundInsecure: withDefault(flag, false),
  protocolVersionCompatibility: optional(oneNumberOf(7, 8)),
  /** Further forms of 0.x that are accepted; only with `protocolVersionCompatibility`. */
  legacyForms: section<LegacyForms>(legacyFormMembers),
  /** The verifiers of the 0.x directives; only with `protocolVersionCompatibility`. */
  legacy: section(keyMembers),
};

export interface HubConfig extends Of<typeof hubMembers> {}

/** A hub with an empty block; it still lacks an issuer. */
export const defaultHub: HubConfig = defaultsOf(hubMembers);

export const hubShape: Shape<HubConfig> = object(hubMembers);

const topics = withDefault(list(name('a topic')), []);

const grantMembers = {
  subscribe: topics,
  subscribeUrlPattern: topics,
  publish: topics,
  publishUrlPattern: topics,
  /** JSON text. */
  payload: optional(name('JSON text')),
  /** Whether the response fields that these texts use are forwarded to the client. */
  keepFields: withDefault(flag, false),
};

/** The grants of a token; every text may contain placeholders. */
export interface TokenGrantsConfig extends Of<typeof grantMembers> {}

const mintMembers = {
  issuer: name('the id of an issuer'),
  key: secret,
  algorithm: optional(name('an algorithm')),
  keyId: optional(name('the id of the key')),
  ttlMs: withDefault(duration(), 15 * MINUTE),
  ...grantMembers,
};

export interface TokenMintConfig extends Of<typeof mintMembers> {
  readonly kind: 'mint';
}

export const defaultTokenMint = { kind: 'mint', ...defaultsOf(mintMembers) } as const;

const exchangeMembers = {
  endpoint: name('a URL'),
  clientId: name('the id of the client'),
  clientSecret: secret,
  /** Text with placeholders; null uses client credentials with authorization details (RFC 9396). */
  subjectToken: optional(name('a text with placeholders')),
  ...grantMembers,
};

export interface TokenExchangeConfig extends Of<typeof exchangeMembers> {
  readonly kind: 'exchange';
}

export const defaultTokenExchange = { kind: 'exchange', ...defaultsOf(exchangeMembers) } as const;

const tokenSource = byKind<TokenMintConfig | TokenExchangeConfig>({
  mint: object(mintMembers),
  exchange: object(exchangeMembers),
});

const topicTexts = list(name('a topic with placeholders'));

const alsoMembers = (matcher: Shape<RequestMatcher | null>) => ({
  matcher: withDefault(matcher, null),
  topics: topicTexts,
});

interface AlsoConfig extends Of<ReturnType<typeof alsoMembers>> {}

const changesMembers = (matcher: Shape<RequestMatcher | null>) => ({
  /** The requests that it applies to; null: all that discovery applies to. */
  matcher: withDefault(matcher, null),
  methods: withDefault(list(text('an unsafe method', isChangingMethod), { min: 1 }), [
    'POST',
    'PUT',
    'PATCH',
    'DELETE',
  ]),
  /** Templates with placeholders. Each result is resolved against the URL of the request. */
  topics: withDefault(topicTexts, [
    '{request.uri.without_query}',
    '{http.response.location}',
    '{http.response.content_location}',
    '{http.response.canonical}',
  ]),
  /** Further topics, in the same format, such as the collection that an item belongs to. */
  also: withDefault(topicTexts, []),
  /** Further topics for some requests only. */
  alsoFor: withDefault(list<AlsoConfig>(object(alsoMembers(matcher))), []),
  /** null: private if the request has credentials, otherwise public. */
  visibility: optional(oneOf('public', 'private')),
  /** The data of an update: URL and method, nothing, or the body of the response if it is JSON. */
  data: withDefault(oneOf('change', 'none', 'body'), 'change'),
  /** Changes of one topic within this time become one update; 0: each is an update of its own. */
  windowMs: withDefault(duration(), 250),
  /** `sync`: the client gets its response when the update is stored. */
  mode: withDefault(oneOf('sync', 'async'), 'async'),
  /** The interval at which followed pages are asked for; null: they are not. */
  watchMs: optional(duration({ min: 1000 })),
  /** Regular expressions for the parts of a watched page that do not count. */
  ignore: withDefault(list(name('a regular expression')), []),
});

/** Which responses mean a change, and what is published then (RFC 9111 §4.4). */
export interface ChangesConfig extends Of<ReturnType<typeof changesMembers>> {}

const aliasMembers = {
  /** The topic of these pages. */
  topic: name('a path'),
  /** Other forms of their URLs. */
  forms: withDefault(list(name('a path')), []),
};

/** Each form is a path with `{name}` in it, and a query with the parameters that identify the page. */
export interface AliasConfig extends Of<typeof aliasMembers> {}

/** It becomes part of the script's element in every page. */
const shortText = text('a text of at most 500 characters', (value) => value.length <= 500);

const liveMembers = (matcher: Shape<RequestMatcher | null>) => ({
  /** The pages that it applies to; null: all that discovery applies to. */
  matcher: withDefault(matcher, null),
  /** For how long one response serves all clients that fetch a public page because of the same update. */
  windowMs: withDefault(duration(), SECOND),
  /** Whether pages report that part of an update is withheld from them. */
  report: withDefault(flag, false),
  /** The text of the button that offers to load a page again; null: the script's own. */
  notice: optional(shortText),
  /** CSS declarations for this button; null: the script's own. */
  noticeStyle: optional(shortText),
});

export interface LiveConfig extends Of<ReturnType<typeof liveMembers>> {}

const cookieMembers = {
  /** Response header of the app that contains the token. */
  fromHeader: withDefault(headerName, 'Hub-Access-Token'),
  sameSite: withDefault(oneOf('Strict', 'Lax'), 'Strict'),
  domain: optional(text('a domain in lower case', (domain) => DOMAIN.test(domain))),
};

interface CookieConfig extends Of<typeof cookieMembers> {}

const expireMembers = {
  statuses: withDefault(list(count({ min: 200, max: 599 })), []),
  /** Paths for which a response below 400 has this meaning. */
  paths: withDefault(list(text('a path such as /logout', (path) => path.startsWith('/'))), []),
};

interface ExpireConfig extends Of<typeof expireMembers> {}

const attribute = text('plain characters without quotes', isLinkAttribute);

const discoveryMembers = (matcher: Shape<RequestMatcher | null>) => ({
  matcher: withDefault(matcher, null),
  /**
   * Address of the site whose hub is announced, URL of a hub, path of a hub of this site, or null for this
   * site's first hub.
   */
  hub: optional(name('the address of a site or the URL of a hub')),
  link: withDefault(flag, true),
  self: withDefault(flag, false),
  contentType: optional(attribute),
  type: optional(attribute),
  lastEventId: withDefault(flag, true),
  cookie: section<CookieConfig>(cookieMembers),
  /** Responses of the app that mean that the user has logged out, in addition to an empty token header. */
  expire: section<ExpireConfig>(expireMembers),
  tokenSource: optional(tokenSource),
  /** Whether the app may publish with the fields `Hub-Publish` and `Hub-Data` of its responses. */
  publish: withDefault(flag, true),
  /** Announces the changes of requests (RFC 9111 §4.4). The first entry that applies is used. */
  changes: withDefault(list<ChangesConfig>(object(changesMembers(matcher))), []),
  /** Pages with several URLs. The first entry that matches a URL is used. */
  aliases: withDefault(list<AliasConfig>(object(aliasMembers)), []),
  /** Inserts into pages the script that makes them follow their changes; null does not. */
  live: optional<LiveConfig>(object(liveMembers(matcher))),
});

export interface DiscoveryConfig extends Of<ReturnType<typeof discoveryMembers>> {}

/** The shape of what a site announces about its hub. */
export function discoveryShape(matcher: Shape<RequestMatcher | null>): Shape<DiscoveryConfig> {
  return object(discoveryMembers(matcher));
}

/** Accepts only null. The defaults are the same for every shape of matchers. */
const noMatcher: Shape<null> = nullable(oneOf<never>());

/** The discovery of every proxied response on a site with a hub. */
export const defaultDiscovery: DiscoveryConfig = defaultsOf(discoveryMembers(noMatcher));
export const defaultChanges: ChangesConfig = defaultsOf(changesMembers(noMatcher));
export const defaultLive: LiveConfig = defaultsOf(liveMembers(noMatcher));
