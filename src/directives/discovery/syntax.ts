import type {
  ChangesConfig,
  DiscoveryConfig,
  LiveConfig,
  TokenExchangeConfig,
  TokenGrantsConfig,
  TokenMintConfig,
} from '../../config/config.ts';
import {
  defaultChanges,
  defaultDiscovery,
  defaultLive,
  defaultTokenExchange,
  defaultTokenMint,
} from '../../config/shape-hub.ts';
import { isChangingMethod, isLinkAttribute } from '../../config/well-formed.ts';
import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import type { Word } from '../../hubfile/parser.ts';
import { type DirectiveSyntax, type Scope, takeMatcher } from '../../hubfile/scope.ts';
import {
  badValue,
  duration,
  fitting,
  flag,
  headerName,
  name,
  oneOf,
  statusCode,
  list,
  matching,
  within,
} from '../../hubfile/values.ts';
import { Secret } from '../../kernel/secret.ts';

const USAGE = `
discovery off
discovery [<matcher>] {
    hub <site address>|<url>|<path>
    link [on|off]
    self
    content_type <media type>
    type <event type>
    no_last_event_id
    cookie {
        from_header <field>
        same_site strict|lax
        domain <domain>
    }
    expire {
        status <status…>
        path <path…>
    }
    token mint {
        issuer <id>
        key <key>
        alg <algorithm>
        kid <id>
        ttl <duration>
        subscribe|publish <topic…>
        subscribe_urlpattern|publish_urlpattern <pattern…>
        payload <json>
        keep_fields
    }
    token exchange {
        endpoint <url>
        client_id <id>
        client_secret <secret>
        subject_token <text>
        subscribe|publish <topic…>
        subscribe_urlpattern|publish_urlpattern <pattern…>
        payload <json>
        keep_fields
    }
    publish [on|off]
    changes [<matcher>] [public|private] {
        on <method…>
        topic <topic…>
        also [<matcher>] <topic…>
        public
        private
        data change|none|body
        window <duration>
        sync
        async
        watch <interval>
        ignore <regexp…>
    }
    alias <topic> [<form…>]
    live [<matcher>] {
        window <duration>
        report
        notice <text> [<CSS declarations>]
    }
}
`;

export const discovery: DirectiveSyntax = {
  usage: USAGE,
  summary: 'announces the hub to browsers and gives them tokens',
  siteOnly: true,
  once: true,
  read(cursor, scope) {
    if (cursor.peek()?.text === 'off') {
      cursor.optional();
      cursor.end();
      scope.site.discovery = 'off';
      return [];
    }
    const matcher = takeMatcher(cursor, scope);
    scope.site.discovery = cursor.options({ ...defaultDiscovery, matcher }, optionsOf(scope), {
      repeatable: ['changes', 'alias'],
    });
    cursor.end();
    return [];
  },
};

const optionsOf = (scope: Scope): OptionTable<DiscoveryConfig> => ({
  hub: (cursor) => ({ hub: name(cursor, 'the address of a site, or the URL or path of a hub') }),
  link: (cursor) => ({ link: cursor.left === 0 || oneOf(cursor, ['on', 'off']) === 'on' }),
  self: () => ({ self: flag() }),
  content_type: (cursor) => ({ contentType: attribute(cursor, 'a media type') }),
  type: (cursor) => ({ type: attribute(cursor, 'an event type') }),
  no_last_event_id: () => ({ lastEventId: false }),
  cookie: (cursor) => ({
    cookie: cursor.options(defaultDiscovery.cookie, {
      from_header: (option) => ({
        fromHeader: headerName(option, option.argument('the name of a header field')),
      }),
      same_site: (option) => ({
        sameSite: oneOf(option, ['strict', 'lax']) === 'lax' ? 'Lax' : 'Strict',
      }),
      domain: (option) => ({ domain: domain(option) }),
    }),
  }),
  expire: (cursor) => ({
    expire: cursor.options(defaultDiscovery.expire, {
      status: (option) => ({
        statuses: option.several('a status').map((word) => statusCode(option, word)),
      }),
      path: (option) => ({ paths: option.several('a path').map((word) => path(option, word)) }),
    }),
  }),
  token: (cursor) => ({ tokenSource: tokenSource(cursor) }),
  publish: (cursor) => ({ publish: cursor.left === 0 || oneOf(cursor, ['on', 'off']) === 'on' }),
  changes: (cursor, sofar) => ({ changes: [...sofar.changes, changes(cursor, scope)] }),
  alias: (cursor, sofar) => {
    const topic = name(cursor, 'a path such as /index.php/{page}');
    const forms = cursor.rest().map(({ text }) => text);
    const alias = cursor.origins.of(cursor.span, { topic, forms });
    return { aliases: [...sofar.aliases, alias] };
  },
  live: (cursor) => {
    const matcher = takeMatcher(cursor, scope);
    const settings = cursor.options<LiveConfig>(
      { ...defaultLive, matcher },
      {
        window: (option) => ({ windowMs: duration(option) }),
        report: () => ({ report: true }),
        notice: (option) => {
          const notice = shortText(option, option.argument('a text'));
          const style = option.optional();
          return {
            notice,
            noticeStyle: style === undefined ? null : shortText(option, style),
          };
        },
      },
    );
    return { live: settings };
  },
});

/** It becomes part of every page. */
const MAX_NOTICE = 500;

function shortText(cursor: Cursor, word: Word): string {
  const isShort = word.text !== '' && word.text.length <= MAX_NOTICE;
  return isShort ? word.text : badValue(cursor, word, `1 to ${MAX_NOTICE} characters`);
}

function path(cursor: Cursor, word: Word): string {
  return word.text.startsWith('/') ? word.text : badValue(cursor, word, 'a path such as /logout');
}

function attribute(cursor: Cursor, expected: string): string {
  return matching(cursor, expected, isLinkAttribute, `${expected} in plain characters`);
}

function domain(cursor: Cursor): string {
  const isDomain = (text: string): boolean => /^\.?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*$/.test(text);
  return matching(cursor, 'a domain', isDomain).replace(/^\./, '').toLowerCase();
}

function changes(cursor: Cursor, scope: Scope): ChangesConfig {
  const matcher = takeMatcher(cursor, scope);
  let mode: ChangesConfig['mode'] | null = null;
  const modeOf = (option: Cursor, chosen: ChangesConfig['mode']): Pick<ChangesConfig, 'mode'> => {
    if (mode !== null && mode !== chosen)
      option.fail(option.span, 'conflicting-option', 'changes are either sync or async');
    mode = chosen;
    return { mode: chosen };
  };
  const visibility = cursor.left === 0 ? null : oneOf(cursor, ['public', 'private']);
  return cursor.options<ChangesConfig>(
    { ...defaultChanges, matcher, visibility },
    {
      on: (option) => ({ methods: methods(option) }),
      topic: (option) => ({ topics: list(option, 'a topic') }),
      also: (option, sofar) => also(option, sofar, scope),
      public: (option, { visibility: said }) => chosen(option, said, 'public'),
      private: (option, { visibility: said }) => chosen(option, said, 'private'),
      data: (option) => ({ data: oneOf(option, ['change', 'none', 'body']) }),
      window: (option) => ({ windowMs: duration(option) }),
      sync: (option) => modeOf(option, 'sync'),
      async: (option) => modeOf(option, 'async'),
      watch: (option) => ({ watchMs: interval(option) }),
      ignore: (option, sofar) => ({
        ignore: [...sofar.ignore, ...list(option, 'a regular expression')],
      }),
    },
    { repeatable: ['also', 'ignore'] },
  );
}

function interval(cursor: Cursor): number {
  return within(cursor, duration, (ms) => ms >= 1000, 'an interval of at least 1s');
}

/** A path with `*` is not a topic: the topics after it are announced for requests to such paths. */
function also(
  cursor: Cursor,
  sofar: ChangesConfig,
  scope: Scope,
): Pick<ChangesConfig, 'also'> | Pick<ChangesConfig, 'alsoFor'> {
  const first = cursor.peek()?.text ?? '';
  if (!first.startsWith('@') && !/^\/.*\*/.test(first)) {
    return { also: [...sofar.also, ...list(cursor, 'a topic')] };
  }
  const matcher = takeMatcher(cursor, scope);
  const bound = { matcher, topics: list(cursor, 'a topic') };
  return { alsoFor: [...sofar.alsoFor, bound] };
}

function chosen(
  cursor: Cursor,
  said: ChangesConfig['visibility'],
  visibility: 'public' | 'private',
): Pick<ChangesConfig, 'visibility'> {
  if (said === null || said === visibility) return { visibility };
  return cursor.fail(cursor.span, 'conflicting-option', 'changes are either public or private');
}

function methods(cursor: Cursor): readonly string[] {
  const expected = 'an unsafe method such as POST';
  return cursor
    .several(expected)
    .map((word) => fitting(cursor, word, isChangingMethod, `${expected}, in upper case`));
}

type Draft<Source, Needed extends keyof Source> = Omit<Source, Needed> & {
  readonly [Field in Needed]: Source[Field] | null;
};

function tokenSource(cursor: Cursor): TokenMintConfig | TokenExchangeConfig {
  return oneOf(cursor, ['mint', 'exchange']) === 'mint' ? mint(cursor) : exchange(cursor);
}

function mint(cursor: Cursor): TokenMintConfig {
  const empty: Draft<TokenMintConfig, 'issuer' | 'key'> = {
    ...defaultTokenMint,
    issuer: null,
    key: null,
  };
  const draft = cursor.options(empty, {
    issuer: (option) => ({ issuer: name(option, 'the id of an issuer') }),
    key: (option) => ({ key: new Secret(name(option, 'a key')) }),
    alg: (option) => ({ algorithm: name(option, 'an algorithm') }),
    kid: (option) => ({ keyId: name(option, 'the id of the key') }),
    ttl: (option) => ({ ttlMs: duration(option) }),
    ...GRANTS,
  });
  const { issuer, key } = draft;
  if (issuer === null) return missing(cursor, 'issuer');
  if (key === null) return missing(cursor, 'key');
  const complete = { ...draft, issuer, key };
  cursor.origins.follow(complete, draft);
  return complete;
}

function exchange(cursor: Cursor): TokenExchangeConfig {
  const empty: Draft<TokenExchangeConfig, 'endpoint' | 'clientId' | 'clientSecret'> = {
    ...defaultTokenExchange,
    endpoint: null,
    clientId: null,
    clientSecret: null,
  };
  const draft = cursor.options(empty, {
    endpoint: (option) => ({ endpoint: name(option, 'a URL') }),
    client_id: (option) => ({ clientId: name(option, 'the id of the client') }),
    client_secret: (option) => ({ clientSecret: new Secret(name(option, 'a secret')) }),
    subject_token: (option) => ({ subjectToken: name(option, 'a text with placeholders') }),
    ...GRANTS,
  });
  const { endpoint, clientId, clientSecret } = draft;
  if (endpoint === null) return missing(cursor, 'endpoint');
  if (clientId === null) return missing(cursor, 'client_id');
  if (clientSecret === null) return missing(cursor, 'client_secret');
  const complete = { ...draft, endpoint, clientId, clientSecret };
  cursor.origins.follow(complete, draft);
  return complete;
}

const GRANTS: OptionTable<TokenGrantsConfig> = {
  subscribe: (option) => ({ subscribe: list(option, 'a topic') }),
  subscribe_urlpattern: (option) => ({ subscribeUrlPattern: list(option, 'a URL Pattern') }),
  publish: (option) => ({ publish: list(option, 'a topic') }),
  publish_urlpattern: (option) => ({ publishUrlPattern: list(option, 'a URL Pattern') }),
  payload: (option) => ({ payload: name(option, 'JSON') }),
  keep_fields: () => ({ keepFields: true }),
};

function missing(cursor: Cursor, option: string): never {
  const kind = cursor.line.words[1]?.text ?? '';
  return cursor.fail(cursor.span, 'missing-option', `token ${kind} needs ${option}`);
}
