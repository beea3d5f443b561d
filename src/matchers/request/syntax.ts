import type { MatchCondition } from '../../config/routes.ts';
import { lowerCaseHost } from '../../config/well-formed.ts';
import type { ConditionSyntax } from '../../hubfile/scope.ts';
import type { Cursor } from '../../hubfile/cursor.ts';
import type { Word } from '../../hubfile/parser.ts';
import { badValue, choiceOf, headerName, ranges } from '../../hubfile/values.ts';
import {
  type ClientIpCondition,
  type HeaderCondition,
  type HeaderRegexpCondition,
  type HostCondition,
  isPathPattern,
  type MethodCondition,
  type NotCondition,
  type PathCondition,
  type PathRegexpCondition,
  type ProtocolCondition,
  PROTOCOLS,
  type QueryCondition,
  type RemoteIpCondition,
} from './data.ts';

export const path: ConditionSyntax<PathCondition> = {
  usage: 'path /a /b/* *.php',
  summary:
    'these paths, whatever their case: `*` at the beginning or the end is any text; in other patterns `*` is any text and `?` any character without a slash, and `[a-z]` is a class',
  read: (cursor) => [{ kind: 'path', paths: cursor.several('a path').map(pathPattern(cursor)) }],
  merge: (a, b) => ({ ...a, paths: [...a.paths, ...b.paths] }),
};

export const pathRegexp: ConditionSyntax<PathRegexpCondition> = {
  usage: 'path_regexp [<name>] <regexp>',
  summary: 'paths that match (RE2 syntax); groups become `{re.name.1}`',
  read(cursor) {
    const words = cursor.several('a regular expression');
    return [marked(cursor, words, { kind: 'path_regexp', ...nameAndPattern(cursor, words) })];
  },
};

export const host: ConditionSyntax<HostCondition> = {
  usage: 'host a.example *.b.example',
  summary: 'these hosts',
  read: (cursor) => [
    { kind: 'host', hosts: cursor.several('a host').map((word) => hostPattern(cursor, word)) },
  ],
  merge: (a, b) => ({ ...a, hosts: [...a.hosts, ...b.hosts] }),
};

export const method: ConditionSyntax<MethodCondition> = {
  usage: 'method GET POST',
  summary: 'these methods',
  read: (cursor) => [
    { kind: 'method', methods: cursor.several('a method').map(({ text }) => text.toUpperCase()) },
  ],
  merge: (a, b) => ({ ...a, methods: [...a.methods, ...b.methods] }),
};

export const header: ConditionSyntax<HeaderCondition> = {
  usage: 'header <field> [<value>]\nheader !<field>',
  summary: 'a field that has the value (with `*` at either end), is present, or is absent',
  read: readHeader,
  merge(a, b) {
    if (a.name.toLowerCase() !== b.name.toLowerCase()) return null;
    // One of them only requires presence, which is the weaker condition with "any of".
    const anyValue = a.values.length === 0 || b.values.length === 0;
    return { ...a, values: anyValue ? [] : [...a.values, ...b.values] };
  },
};

export const headerRegexp: ConditionSyntax<HeaderRegexpCondition> = {
  usage: 'header_regexp [<name>] <field> <regexp>',
  summary:
    'fields that match; a value of more than 16 KiB gets a 431 (for all regular expressions)',
  read(cursor) {
    const words = cursor.several('a header field and a regular expression');
    const named = words.length > 2 ? words.slice(0, 1) : [];
    const [field, ...pattern] = words.slice(named.length);
    if (field === undefined || pattern.length === 0) {
      const message = 'header_regexp needs a field and a regular expression';
      return cursor.fail(cursor.span, 'expected-argument', message);
    }
    const name = headerName(cursor, field);
    const rest = nameAndPattern(cursor, [...named, ...pattern]);
    return [marked(cursor, words, { kind: 'header_regexp', ...rest, header: name })];
  },
};

export const query: ConditionSyntax<QueryCondition> = {
  usage: 'query key=value\nquery key=*\nquery ""',
  summary: 'these parameters; `""` for a request without any',
  read: (cursor) =>
    cursor.several('key=value').map((word) => {
      const equals = word.text.indexOf('=');
      if (word.text === '') return { kind: 'query', name: '', values: [] };
      if (equals < 1) badValue(cursor, word, 'key=value, or key=* for any value');
      return {
        kind: 'query',
        name: word.text.slice(0, equals),
        values: [word.text.slice(equals + 1)],
      };
    }),
  merge: (a, b) => (a.name === b.name ? { ...a, values: [...a.values, ...b.values] } : null),
};

export const protocol: ConditionSyntax<ProtocolCondition> = {
  usage: 'protocol http|https|grpc|http/1.1|http/2',
  summary: 'the protocol',
  read: (cursor) => [
    { kind: 'protocol', protocol: choiceOf(cursor, cursor.argument('a protocol'), PROTOCOLS) },
  ],
  // As in Caddy, the later one counts.
  merge: (_, b) => b,
};

export const remoteIp: ConditionSyntax<RemoteIpCondition> = {
  usage: 'remote_ip <range…>',
  summary: 'the peer; `private_ranges`',
  read: (cursor) => [{ kind: 'remote_ip', ranges: ofPeer(cursor) }],
  merge: (a, b) => ({ ...a, ranges: [...a.ranges, ...b.ranges] }),
};

export const clientIp: ConditionSyntax<ClientIpCondition> = {
  usage: 'client_ip <range…>',
  summary: 'the client behind trusted proxies; `private_ranges`',
  read: (cursor) => [{ kind: 'client_ip', ranges: ranges(cursor) }],
  merge: (a, b) => ({ ...a, ranges: [...a.ranges, ...b.ranges] }),
};

export const not: ConditionSyntax<NotCondition> = {
  usage: 'not <condition>\nnot { <conditions…> }',
  summary: 'requests that do not match the condition or block',
  read: (cursor, nested) => [{ kind: 'not', matchers: [nested(cursor)] }],
};

function readHeader(cursor: Cursor): MatchCondition[] {
  const field = cursor.argument('a header field');
  if (!field.text.startsWith('!')) {
    const value = cursor.optional();
    const values = value === undefined ? [] : [value.text];
    return [{ kind: 'header', name: headerName(cursor, field), values }];
  }
  const name = headerName(cursor, field, field.text.slice(1));
  return [{ kind: 'not', matchers: [[{ kind: 'header', name, values: [] }]] }];
}

/** What a host is compared with has no port, so one in the pattern would never match. */
function hostPattern(cursor: Cursor, word: Word): string {
  const hasPort = /^[^:]*:\d+$|\]:\d+$/.test(word.text);
  return hasPort ? badValue(cursor, word, 'a host without a port') : lowerCaseHost(word.text);
}

function pathPattern(cursor: Cursor): (word: Parameters<typeof badValue>[1]) => string {
  return (word) => {
    if (isPathPattern(word.text)) return word.text;
    const begins = /^[/*{]/.test(word.text);
    const expected = begins
      ? 'a path whose [classes] are closed'
      : 'a path that begins with / or *';
    return badValue(cursor, word, expected);
  };
}

function nameAndPattern(
  cursor: Cursor,
  words: readonly Word[],
): { name: string | null; pattern: string } {
  if (words.length > 2) {
    cursor.fail(
      cursor.span,
      'unexpected-argument',
      `${cursor.name} takes a name and one regular expression`,
    );
  }
  const pattern = words.at(-1)?.text ?? '';
  return { name: words.length === 2 ? (words[0]?.text ?? null) : null, pattern };
}

/** The regular expression is the last word. */
function marked<Condition extends MatchCondition>(
  cursor: Cursor,
  words: readonly Word[],
  condition: Condition,
): Condition {
  const place = words.at(-1)?.span ?? cursor.span;
  cursor.origins.mark(condition, cursor.span, new Map([['pattern', place]]));
  return condition;
}

/** Caddy once trusted the client's own value for its address here. */
function ofPeer(cursor: Cursor): readonly string[] {
  const word = cursor.peek();
  if (word?.text === 'forwarded') {
    const message =
      'remote_ip is the address of the connection; hubgate does not support forwarded';
    const hint =
      'write client_ip <ranges…>, and servers { trusted_proxies … } in the global options';
    cursor.fail(word.span, 'unsupported-option', message, hint);
  }
  return ranges(cursor);
}
