import type { RouteConfig } from '../config/routes.ts';
import { object, optional } from '../config/shape.ts';
import { name as nameShape } from '../config/shape-values.ts';
import type {
  HubConfig,
  OutboxConfig,
  IssuerConfig,
  JwksKeySource,
  KeySource,
  StaticKeySource,
} from '../config/config.ts';
import {
  defaultHub,
  defaultIssuer,
  defaultJwks,
  defaultOutbox,
  hubMembers,
  jwksMembers,
  legacyFormMembers,
  outboxMembers,
} from '../config/shape-hub.ts';
import { isCookieName, isHubPath, isLabel } from '../config/well-formed.ts';
import type { Cursor, OptionTable } from '../hubfile/cursor.ts';
import { type Scope, step, takeMatcher } from '../hubfile/scope.ts';
import { fitting, flag, matching, name, oneOf, optionsOf, text } from '../hubfile/values.ts';
import { transport } from './hub/transport.ts';
import type { HandlerDirective } from './directive.ts';
import { Secret } from '../kernel/secret.ts';

/** The position of a hub among the routes of its site. */
export interface HubPlaceConfig {
  readonly kind: 'hub';
  /** Name of a further hub; null for the first. */
  readonly name: string | null;
}

const USAGE = `
hub [@<matcher>] [<path>] {
    issuer <id> {
        authorization_server
        publisher {
            jwt <key> [<algorithm>]
            jwks_uri <url> [<algorithm…>] [{ refresh <duration>; cooldown <duration>; timeout <duration> }]
        }
        subscriber {
            jwt <key> [<algorithm>]
            jwks_uri <url> [<algorithm…>] [{ refresh <duration>; cooldown <duration>; timeout <duration> }]
        }
    }
    profile hub|mercure
    anonymous
    subscriptions
    cookie_name <name>
    cors_origins <origin…>
    publish_origins <origin…>
    public_urls <url…>
    resource_identifier <url>
    detail_type <uri>
    name <label>
    heartbeat <duration>
    write_timeout <duration>
    dispatch_timeout <duration>
    max_request_body_size <size>
    max_connections <n>
    max_connections_per_client <n>
    max_subscriber_buffer <size>
    max_pattern_size <n>
    topic_matcher_cache <n>
    subscriber_list_cache_size <n>
    transport memory [{ size <n> }]
    transport lmdb {
        path <directory>
        size <n>
        max_age <duration>
        durability commit|async
        shared
    }
    transport redis {
        url|urls <url…>
        sentinel <name>
        cluster
        stream <name>
        max_length <n>
        max_age <duration>
        durability primary|replicated [<n>]
        tls_trust_pool <pem file>
        shared
    }
    transport postgres {
        url <url>
        password_file <file>
        listen_url <url>
        schema <name>
        stream <name>
        max_length <n>
        max_age <duration>
        durability commit|async|replicated
        tls_trust_pool <pem file>
        shared
    }
    outbox <url> {
        table <name>
        topics <topic or pattern…>
        origins <origin…>
        password_file <file>
        tls_trust_pool <pem file>
    }
    debugger
    playground [insecure]
    protocol_version_compatibility 7|8 [{ strings; topics; templates }]
    publisher_jwt|subscriber_jwt <key> [<algorithm>]
    publisher_jwks_url|subscriber_jwks_url <url> [<algorithm…>] [{ refresh <duration>; cooldown <duration>; timeout <duration> }]
}
`;

export const hub: HandlerDirective<HubPlaceConfig> = {
  data: {
    shape: () => object({ name: optional(nameShape('the name of a further hub')) }),
  },
  syntax: {
    usage: USAGE,
    summary: 'a publish/subscribe hub of the site',
    after: 'encode',
    read: (cursor, scope) => readHub(cursor, scope, defaultHub, OPTIONS),
  },
  /** The hub itself is set up with the site; this is only its position among the routes. */
  compile({ name }, { hubHandler }) {
    return hubHandler(name);
  },
};

/** Reads the block of a hub, given some settings and options. */
export function readHub(
  cursor: Cursor,
  scope: Scope,
  start: HubConfig,
  options: OptionTable<HubConfig>,
): readonly RouteConfig[] {
  // A path alone is the path of the hub.
  const matcher = cursor.peek()?.text.startsWith('@') === true ? takeMatcher(cursor, scope) : null;
  const path = hubPath(cursor);
  const settings = cursor.options({ ...start, path }, options, {
    repeatable: ['issuer'],
    unsupported: {
      transport_url: 'use a transport block: transport lmdb { path … }',
      demo: 'debugger serves a test page, and playground opens the hub without keys',
    },
  });
  cursor.end();
  const further = scope.site.hub !== null;
  if (further) scope.site.moreHubs.push(settings);
  else scope.site.hub = settings;
  return [step(cursor, matcher, { kind: 'hub', name: further ? settings.name : null })];
}

export const OPTIONS: OptionTable<HubConfig> = {
  ...optionsOf(hubMembers, { path: null, issuers: 'issuer', playgroundInsecure: null }),
  name: (cursor) => ({ name: label(cursor) }),
  issuer: (cursor, sofar) => ({ issuers: [...sofar.issuers, issuer(cursor)] }),
  cookie_name: (cursor) => ({ cookieName: cookieName(cursor) }),
  transport: (cursor) => ({ transport: transport(cursor) }),
  outbox: (cursor) => ({ outbox: outbox(cursor) }),
  playground: (cursor) => ({
    playground: flag(),
    debugger: true,
    playgroundInsecure: cursor.peek() !== undefined && oneOf(cursor, ['insecure']) === 'insecure',
  }),
  protocol_version_compatibility: (cursor) => ({
    protocolVersionCompatibility: oneOf(cursor, ['7', '8']) === '7' ? 7 : 8,
    legacyForms: cursor.options(defaultHub.legacyForms, optionsOf(legacyFormMembers)),
  }),
  publisher_jwt: (cursor, sofar) => legacy(cursor, sofar, 'publisher'),
  subscriber_jwt: (cursor, sofar) => legacy(cursor, sofar, 'subscriber'),
  publisher_jwks_url: (cursor, sofar) => legacy(cursor, sofar, 'publisher'),
  subscriber_jwks_url: (cursor, sofar) => legacy(cursor, sofar, 'subscriber'),
};

function legacy(
  cursor: Cursor,
  { legacy: known }: HubConfig,
  role: 'publisher' | 'subscriber',
): Partial<HubConfig> {
  if (known[role] !== null) {
    const message = `${role}_jwt and ${role}_jwks_url are mutually exclusive`;
    cursor.fail(cursor.span, 'mutually-exclusive', message);
  }
  const source = cursor.name === `${role}_jwt` ? jwt(cursor) : jwksUri(cursor);
  return { legacy: cursor.origins.of(cursor.span, { ...known, [role]: source }) };
}

function hubPath(cursor: Cursor): string | null {
  const word = cursor.optional();
  if (word === undefined) return null;
  return fitting(cursor, word, isHubPath, 'a path such as /.well-known/hub');
}

function label(cursor: Cursor): string {
  const expected = 'a label of letters, digits, ".", "_", "~" and "-"';
  return matching(cursor, 'a label', isLabel, expected);
}

function cookieName(cursor: Cursor): string {
  return matching(cursor, 'the name of a cookie', isCookieName, 'the name of a cookie (RFC 6265)');
}

function outbox(cursor: Cursor): OutboxConfig {
  const url = new Secret(cursor.argument('a URL such as postgres://USER@HOST:5432/DATABASE').text);
  return cursor.options<OutboxConfig>(
    { ...defaultOutbox, url },
    optionsOf(outboxMembers, { trustPoolFile: 'tls_trust_pool' }),
  );
}

function issuer(cursor: Cursor): IssuerConfig {
  const id = text(cursor, 'the id of an issuer, as in the iss claim of its tokens');
  return cursor.options<IssuerConfig>(
    { id, ...defaultIssuer },
    {
      authorization_server: () => ({ authorizationServer: flag() }),
      publisher: (option) => ({ publisher: keySource(option) }),
      subscriber: (option) => ({ subscriber: keySource(option) }),
    },
  );
}

/** The block of `publisher` or `subscriber`: one of the two kinds of keys. */
function keySource(cursor: Cursor): KeySource | null {
  cursor.block();
  const empty: { readonly source: KeySource | null } = { source: null };
  const { source } = cursor.options(empty, {
    jwt: (option, sofar) => ({ source: only(option, sofar.source, jwt) }),
    jwks_uri: (option, sofar) => ({ source: only(option, sofar.source, jwksUri) }),
  });
  return source;
}

function only(
  cursor: Cursor,
  known: KeySource | null,
  read: (cursor: Cursor) => KeySource,
): KeySource {
  if (known === null) return read(cursor);
  return cursor.fail(cursor.span, 'mutually-exclusive', 'jwt and jwks_uri are mutually exclusive');
}

function jwt(cursor: Cursor): StaticKeySource {
  const key = new Secret(cursor.argument('a key').text);
  const algorithm = cursor.optional()?.text ?? null;
  return cursor.origins.of(cursor.span, { kind: 'jwt', key, algorithm });
}

function jwksUri(cursor: Cursor): JwksKeySource {
  const uri = name(cursor, 'the URL of a JWK Set');
  const algorithms = cursor.rest().map((word) => word.text);
  const start: JwksKeySource = { ...defaultJwks, uri, algorithms };
  return cursor.options(start, optionsOf(jwksMembers, { uri: null }));
}
