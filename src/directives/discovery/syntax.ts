import type { DiscoveryConfig, LiveConfig } from '../../config/config.ts';
import { defaultDiscovery, defaultLive } from '../../config/defaults.ts';
import type { Cursor, OptionTable } from '../../hubfile/cursor.ts';
import type { Word } from '../../hubfile/parser.ts';
import { type DirectiveSyntax, type Scope, takeMatcher } from '../../hubfile/scope.ts';
import {
  badValue,
  duration,
  flag,
  headerName,
  name,
  oneOf,
  statusCode,
} from '../../hubfile/values.ts';
import { changes } from './syntax/changes.ts';
import { tokenSource } from './syntax/token-source.ts';

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

/** It becomes part of a quoted string of the Link header. */
function attribute(cursor: Cursor, expected: string): string {
  const word = cursor.argument(expected);
  return /^[\x20\x21\x23-\x5b\x5d-\x7e]+$/.test(word.text)
    ? word.text
    : badValue(cursor, word, `${expected} in plain characters`);
}

function domain(cursor: Cursor): string {
  const word = cursor.argument('a domain');
  const isDomain = /^\.?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*$/.test(word.text);
  return isDomain ? word.text.replace(/^\./, '').toLowerCase() : badValue(cursor, word, 'a domain');
}
