import type {
  AliasConfig,
  AlsoConfig,
  ChangesConfig,
  DiscoveryConfig,
  HubConfig,
  IssuerConfig,
  KeySource,
  LiveConfig,
  OutboxConfig,
} from './config.ts';
import type { RequestMatcher } from './routes.ts';
import {
  defaultChanges,
  defaultDiscovery,
  defaultHub,
  defaultJwks,
  defaultLive,
  defaultOutbox,
  defaultTokenExchange,
  defaultTokenMint,
} from './defaults.ts';
import { headerName } from './shape-options.ts';
import { transportShape } from './transports.ts';
import {
  isChangingMethod,
  isCookieName,
  isHubPath,
  isLabel,
  isLinkAttribute,
} from './well-formed.ts';
import { byKind, list, nullable, object, type Shape } from './shape.ts';
import {
  count,
  duration,
  flag,
  name,
  oneNumberOf,
  oneOf,
  secret,
  size,
  text,
} from './shape-values.ts';

const DOMAIN = /^[a-z0-9-]+(?:\.[a-z0-9-]+)*$/;

const keySource: Shape<KeySource> = byKind<KeySource>({
  jwt: object({ key: secret, algorithm: nullable(text('an algorithm')) }, { algorithm: null }),
  jwks: object(
    {
      uri: name('the URL of a JWK Set'),
      algorithms: list(name('an algorithm')),
      refreshMs: duration(),
      cooldownMs: duration(),
      timeoutMs: duration(),
    },
    defaultJwks,
  ),
});

const noKeys = { publisher: null, subscriber: null };

const issuer = object<IssuerConfig>(
  {
    id: text('the id of an issuer'),
    authorizationServer: flag,
    publisher: nullable(keySource),
    subscriber: nullable(keySource),
  },
  { authorizationServer: false, ...noKeys },
);

const outbox = object<OutboxConfig>(
  {
    url: secret,
    passwordFile: nullable(name('a file')),
    trustPoolFile: nullable(name('a PEM file')),
    table: name('the name of a table'),
    topics: list(name('a topic or a URL Pattern')),
    origins: list(name('an origin')),
  },
  defaultOutbox,
);

export const hubShape: Shape<HubConfig> = object(
  {
    profile: oneOf('hub', 'mercure'),
    path: nullable(text('a path such as /.well-known/hub', isHubPath)),
    detailType: nullable(name('a URI')),
    name: text('a label of letters, digits, ".", "_", "~" and "-"', isLabel),
    issuers: list(issuer),
    anonymous: flag,
    subscriptions: flag,
    cookieName: nullable(text('the name of a cookie', isCookieName)),
    corsOrigins: list(name('an origin')),
    publishOrigins: list(name('an origin')),
    publicUrls: list(name('a URL')),
    resourceIdentifier: nullable(name('a URL')),
    heartbeatMs: duration(),
    writeTimeoutMs: duration(),
    dispatchTimeoutMs: duration(),
    maxRequestBodySize: size(),
    maxConnections: count(),
    maxConnectionsPerClient: count(),
    // Without a limit, one stalled subscriber could use all memory.
    maxSubscriberBuffer: size({ min: 1 }),
    maxPatternSize: count({ min: 1 }),
    transport: transportShape,
    outbox: nullable(outbox),
    topicMatcherCache: count({ min: -(2 ** 31) }),
    subscriberListCacheSize: count(),
    debugger: flag,
    playground: flag,
    playgroundInsecure: flag,
    protocolVersionCompatibility: nullable(oneNumberOf(7, 8)),
    legacyForms: object({ strings: flag, topics: flag, templates: flag }, defaultHub.legacyForms),
    legacy: object({ publisher: nullable(keySource), subscriber: nullable(keySource) }, noKeys),
  },
  defaultHub,
);

const topics = list(name('a topic'));

const grants = {
  subscribe: topics,
  subscribeUrlPattern: topics,
  publish: topics,
  publishUrlPattern: topics,
  payload: nullable(name('JSON text')),
  keepFields: flag,
};

const tokenSource = byKind<NonNullable<DiscoveryConfig['tokenSource']>>({
  mint: object(
    {
      issuer: name('the id of an issuer'),
      key: secret,
      algorithm: nullable(name('an algorithm')),
      keyId: nullable(name('the id of the key')),
      ttlMs: duration(),
      ...grants,
    },
    defaultTokenMint,
  ),
  exchange: object(
    {
      endpoint: name('a URL'),
      clientId: name('the id of the client'),
      clientSecret: secret,
      subjectToken: nullable(name('a text with placeholders')),
      ...grants,
    },
    defaultTokenExchange,
  ),
});

const topicTexts = list(name('a topic with placeholders'));

const changesShape = (matcher: Shape<RequestMatcher | null>): Shape<ChangesConfig> =>
  object<ChangesConfig>(
    {
      matcher,
      methods: list(text('an unsafe method', isChangingMethod), { min: 1 }),
      topics: topicTexts,
      also: topicTexts,
      alsoFor: list(object<AlsoConfig>({ matcher, topics: topicTexts }, { matcher: null })),
      visibility: nullable(oneOf('public', 'private')),
      data: oneOf('change', 'none', 'body'),
      windowMs: duration(),
      mode: oneOf('sync', 'async'),
      watchMs: nullable(duration({ min: 1000 })),
      ignore: list(name('a regular expression')),
    },
    defaultChanges,
  );

/** It becomes part of the script's element in every page. */
const shortText = text('a text of at most 500 characters', (value) => value.length <= 500);

/** The shape of what a site announces about its hub. */
export function discoveryShape(matcher: Shape<RequestMatcher | null>): Shape<DiscoveryConfig> {
  const attribute = text('plain characters without quotes', isLinkAttribute);
  return object(
    {
      matcher,
      hub: nullable(name('the address of a site or the URL of a hub')),
      link: flag,
      self: flag,
      contentType: nullable(attribute),
      type: nullable(attribute),
      lastEventId: flag,
      cookie: object<DiscoveryConfig['cookie']>(
        {
          fromHeader: headerName,
          sameSite: oneOf('Strict', 'Lax'),
          domain: nullable(text('a domain in lower case', (domain) => DOMAIN.test(domain))),
        },
        defaultDiscovery.cookie,
      ),
      expire: object<DiscoveryConfig['expire']>(
        {
          statuses: list(count({ min: 200, max: 599 })),
          paths: list(text('a path such as /logout', (path) => path.startsWith('/'))),
        },
        defaultDiscovery.expire,
      ),
      tokenSource: nullable(tokenSource),
      publish: flag,
      changes: list(changesShape(matcher)),
      aliases: list(
        object<AliasConfig>({ topic: name('a path'), forms: list(name('a path')) }, { forms: [] }),
      ),
      live: nullable(
        object<LiveConfig>(
          {
            matcher,
            windowMs: duration(),
            report: flag,
            notice: nullable(shortText),
            noticeStyle: nullable(shortText),
          },
          defaultLive,
        ),
      ),
    },
    defaultDiscovery,
  );
}
