import { domainToASCII } from 'node:url';
import { list, object, type Of, optional } from '../config/shape.ts';
import { name as nameShape, text } from '../config/shape-values.ts';
import { lowerCaseHost } from '../config/well-formed.ts';
import { matchedPath, pathOf } from '../http/request-path.ts';
import type { Cursor } from '../hubfile/cursor.ts';
import type { Word } from '../hubfile/parser.ts';
import { badValue } from '../hubfile/values.ts';
import { type GlobPiece, isGlob } from '../kernel/glob.ts';
import { expandForMatcher, hostname, queryOf } from '../site/placeholders.ts';
import {
  capturing,
  decoderFor,
  filledIn,
  type IsLike,
  likePath,
  viewFor,
} from '../site/text-pattern.ts';
import { type ListCondition, listOf, type Matcher, withRegexp } from './matcher.ts';

export const method: Matcher<ListCondition<'method', 'methods'>> = listOf('method', 'methods', {
  item: text('a method in upper case', (each) => /^[A-Z0-9!#$%&'*+\-.^_|~]+$/.test(each)),
  usage: 'method GET POST',
  summary: 'these methods',
  read: (cursor) => cursor.several('a method').map(({ text }) => text.toUpperCase()),
  compile(names) {
    const methods = new Set(names.map((name) => name.toUpperCase()));
    return (exchange) => methods.has(exchange.method);
  },
});

export const host: Matcher<ListCondition<'host', 'hosts'>> = listOf('host', 'hosts', {
  item: text('a host in lower case', (each) => each !== '' && each === lowerCaseHost(each)),
  usage: 'host a.example *.b.example',
  summary: 'these hosts',
  read: (cursor) => cursor.several('a host').map((word) => readHost(cursor, word)),
  compile(hosts) {
    const wanted = hosts.map((host) => filledIn(asciiHost(host), hostPattern));
    return (exchange) => {
      const host = hostname(exchange.host);
      return wanted.some((like) => like(exchange)(host));
    };
  },
});

/** What a host is compared with has no port, so one in the pattern would never match. */
function readHost(cursor: Cursor, word: Word): string {
  const hasPort = /^[^:]*:\d+$|\]:\d+$/.test(word.text);
  return hasPort ? badValue(cursor, word, 'a host without a port') : lowerCaseHost(word.text);
}

/** Clients send international names in their ASCII form (RFC 5891 §4.4). */
function asciiHost(pattern: string): string {
  const ascii = (label: string): string =>
    /\P{ASCII}/u.test(label) ? domainToASCII(label) || label : label;
  return pattern.split('.').map(ascii).join('.');
}

/** One `*` stands for one label. */
function hostPattern(pieces: readonly GlobPiece[]): IsLike {
  // No host contains NUL, so a star from a placeholder never matches.
  const pattern = pieces
    .map(({ text, isLiteral }) => (isLiteral ? text.replaceAll('*', '\0') : text))
    .join('');
  const labels = hostname(pattern).split('.');
  if (!labels.includes('*')) {
    const exact = labels.join('.');
    return (host) => host === exact;
  }
  return (host) => {
    const parts = host.split('.', labels.length + 1);
    return (
      parts.length === labels.length &&
      labels.every((label, i) => (label === '*' ? parts[i] !== '' : label === parts[i]))
    );
  };
}

/** Whether it can be a path, or a pattern of paths. */
export function isPathPattern(text: string): boolean {
  return /^[/*{]/.test(text) && text.split(/(?<!\\)\{[^{}]*\}/).every(isGlob);
}

export const path: Matcher<ListCondition<'path', 'paths'>> = listOf('path', 'paths', {
  item: text('a path that begins with / or *', isPathPattern),
  usage: 'path /a /b/* *.php',
  summary:
    'these paths, whatever their case: `*` at the beginning or the end is any text; in other patterns `*` is any text and `?` any character without a slash, and `[a-z]` is a class',
  read: (cursor) => cursor.several('a path').map((word) => readPath(cursor, word)),
  compile(patterns) {
    const wanted = patterns.map((pattern) => ({
      view: viewFor(pattern),
      like: filledIn(pattern, likePath, decoderFor(pattern)),
    }));
    return (exchange) => {
      const path = pathOf(exchange);
      return wanted.some(({ view, like }) => like(exchange)(view(path)));
    };
  },
});

function readPath(cursor: Cursor, word: Word): string {
  if (isPathPattern(word.text)) return word.text;
  const begins = /^[/*{]/.test(word.text);
  const expected = begins ? 'a path whose [classes] are closed' : 'a path that begins with / or *';
  return badValue(cursor, word, expected);
}

const regexpMembers = {
  name: optional(nameShape('a name for the captured groups')),
  pattern: text('a regular expression'),
};

export interface PathRegexpCondition extends Of<typeof regexpMembers> {
  readonly kind: 'path_regexp';
}

export const pathRegexp: Matcher<PathRegexpCondition> = {
  data: { shape: () => object(regexpMembers) },
  syntax: {
    usage: 'path_regexp [<name>] <regexp>',
    summary: 'paths that match (RE2 syntax); groups become `{re.name.1}`',
    read: (cursor) => [
      withRegexp(cursor, 'path_regexp', cursor.several('a regular expression'), {}),
    ],
  },
  compile({ name, pattern }) {
    const capture = capturing(pattern, name, false);
    return (exchange) => capture(matchedPath(exchange), exchange);
  },
};

const queryMembers = {
  /** Empty: a request without parameters. */
  name: text('the name of a parameter'),
  values: list(text('a value')),
};

export interface QueryCondition extends Of<typeof queryMembers> {
  readonly kind: 'query';
}

export const query: Matcher<QueryCondition> = {
  data: { shape: () => object(queryMembers) },
  syntax: {
    usage: 'query key=value\nquery key=*\nquery ""',
    summary: 'these parameters; `""` for a request without any',
    read: (cursor) =>
      cursor.several('key=value').map((word) => {
        const equals = word.text.indexOf('=');
        if (word.text === '') return { kind: 'query', name: '', values: [] };
        if (equals < 1) badValue(cursor, word, 'key=value, or key=* for any value');
        const value = word.text.slice(equals + 1);
        return { kind: 'query', name: word.text.slice(0, equals), values: [value] };
      }),
    merge: (a, b) => (a.name === b.name ? { ...a, values: [...a.values, ...b.values] } : null),
  },
  compile({ name, values }) {
    // `/?` has no parameters either.
    if (name === '') return (exchange) => queryOf(exchange).size === 0;
    const takesAny = values.includes('*') || values.length === 0;
    return (exchange) => {
      const present = queryOf(exchange).getAll(expandForMatcher(name, exchange));
      if (takesAny || present.length === 0) return present.length > 0;
      const wanted = values.map((value) => expandForMatcher(value, exchange));
      return present.some((value) => wanted.includes(value));
    };
  },
};
