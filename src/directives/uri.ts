import type { Cursor } from '../hubfile/cursor.ts';
import { oneStep } from '../hubfile/scope.ts';
import { badValue, count, name, oneOf, text } from '../hubfile/values.ts';
import {
  changeQuery,
  type QueryChange,
  uri as data,
  type UriChange,
  type UriConfig,
} from './uri/query.ts';
import { compilePattern, matchable } from '../http/linear-regexp.ts';
import type { Exchange } from '../http/exchange.ts';
import { canonicalRewrite } from '../http/canonical-target.ts';
import { decodePath, mergeSlashes, pathOf } from '../http/request-path.ts';
import type { HandlerContext } from '../site/handler-context.ts';
import type { HandlerDirective } from './directive.ts';

const USAGE = `
uri [<matcher>] strip_prefix <prefix>
uri [<matcher>] strip_suffix <suffix>
uri [<matcher>] replace <find> <replacement> [<limit>]
uri [<matcher>] path_regexp <regexp> <replacement>
uri [<matcher>] query [-|+]<name> [<value>|<regexp> <replacement>] {
    <name> <value>
    +<name> <value>
    -<name>
    <name>><new name>
    <name>|* <regexp> <replacement>
}
`;

export const uri: HandlerDirective<UriConfig> = {
  data,
  syntax: {
    usage: USAGE,
    summary: 'strips, replaces or adds parts of the path or the query',
    read: oneStep((cursor) => ({ kind: 'uri', change: changeOf(cursor) })),
  },
  /** `uri [<matcher>] strip_prefix|strip_suffix|replace|path_regexp|query …` */
  compile({ change }, context) {
    const retarget = compileChange(change, context);
    return (exchange, next) => {
      exchange.target = canonicalRewrite(retarget(exchange));
      return next();
    };
  },
};

function changeOf(cursor: Cursor): UriChange {
  const kinds = ['strip_prefix', 'strip_suffix', 'replace', 'path_regexp', 'query'] as const;
  const kind = oneOf(cursor, kinds);
  switch (kind) {
    case 'strip_prefix': {
      const prefix = name(cursor, 'a text');
      return { kind, text: /^[/{]/.test(prefix) ? prefix : `/${prefix}` };
    }
    case 'strip_suffix':
      return { kind, text: name(cursor, 'a text') };
    case 'replace': {
      const found = name(cursor, 'a text');
      const replacement = text(cursor, 'a replacement');
      return { kind, text: found, replacement, limit: cursor.left > 0 ? count(cursor) : 0 };
    }
    case 'path_regexp':
      return withPattern(cursor, { kind });
    case 'query':
      return { kind, changes: queryChanges(cursor) };
  }
}

function queryChanges(cursor: Cursor): readonly QueryChange[] {
  const own = cursor.left > 0 || !cursor.hasBlock ? [queryChange(cursor)] : [];
  return [...own, ...cursor.eachLine((line) => queryChange(line, line.name))];
}

/** @param first the name of the parameter, with its sign, if it begins the line */
function queryChange(cursor: Cursor, first?: string): QueryChange {
  const word =
    first === undefined ? cursor.argument('the name of a parameter') : cursor.line.words[0];
  const written = word?.text ?? '';
  if (word === undefined || /^[-+]?$/.test(written)) {
    return word === undefined
      ? cursor.fail(cursor.span, 'expected-argument', 'the name of a parameter is missing here')
      : badValue(cursor, word, 'the name of a parameter');
  }
  if (written.startsWith('-')) return { kind: 'delete', name: written.slice(1) };
  const value = 'a value, or a regular expression and its replacement';
  if (written.startsWith('+')) {
    return { kind: 'add', name: written.slice(1), value: text(cursor, 'a value') };
  }
  const [from = '', to] = written.split(/>(.*)/s);
  if (to !== undefined) {
    if (from === '' || to === '') badValue(cursor, word, 'two names with > between them');
    return { kind: 'rename', name: from, to };
  }
  if (cursor.left > 1) return withPattern(cursor, { kind: 'replace', name: written });
  if (written === '*' && cursor.left === 1) {
    const hint = 'give * a regular expression and its replacement';
    return cursor.fail(
      word.span,
      'bad-value',
      '* is not allowed here; it means all parameters',
      hint,
    );
  }
  return { kind: 'set', name: written, value: text(cursor, value) };
}

function withPattern<Change extends object>(cursor: Cursor, change: Change) {
  const word = cursor.argument('a regular expression');
  const replacement = text(cursor, 'a replacement');
  const result = { ...change, pattern: word.text, replacement };
  cursor.origins.mark(result, cursor.span, new Map([['pattern', word.span]]));
  return result;
}

/** The new target of a request. */
type Retarget = (exchange: Exchange) => string;

function compileChange(change: UriChange, { expandOrEmpty: expand }: HandlerContext): Retarget {
  switch (change.kind) {
    case 'strip_prefix':
      return ofPath((path, exchange) => {
        const prefix = expand(change.text, exchange);
        return without(path, prefix.startsWith('/') ? prefix : `/${prefix}`, 'start');
      });
    case 'strip_suffix':
      return ofPath((path, exchange) => without(path, expand(change.text, exchange), 'end'));
    case 'replace': {
      const replaced = (text: string, exchange: Exchange): string =>
        replace(
          text,
          expand(change.text, exchange),
          expand(change.replacement, exchange),
          change.limit,
        );
      return ofPath(
        (path, exchange) => replaced(merged(path, expand(change.text, exchange)), exchange),
        replaced,
      );
    }
    case 'path_regexp': {
      const replaced = compilePattern(change.pattern).replacer(change.replacement);
      return ofPath((path, exchange) =>
        replaced(matchable(path), (text) => expand(text, exchange)),
      );
    }
    case 'query': {
      const changed = changeQuery(change.changes, expand);
      return (exchange) => {
        const path = pathOf(exchange);
        const query = changed(exchange.target.slice(path.length + 1), exchange);
        return query === '' ? path : `${path}?${query}`;
      };
    }
  }
}

type Change = (text: string, exchange: Exchange) => string;

/** A percent sign that begins no escape. */
const STRAY_PERCENT = /%(?![0-9A-Fa-f]{2})/;

/**
 * A change of the path, and of the query where one is given. What it brings into the path stays there. A change that
 * would damage an escape, such as `2` in `%20`, is made in the decoded path, as in Caddy.
 */
function ofPath(changed: Change, changedQuery: Change = (query) => query): Retarget {
  return (exchange) => {
    const path = pathOf(exchange);
    const query = exchange.target.slice(path.length + 1);
    let whole = changed(path, exchange);
    if (path.includes('%') && STRAY_PERCENT.test(whole)) {
      whole = changed(decodePath(path), exchange).replaceAll('%', '%25');
    }
    const target = whole.replaceAll('?', '%3F');
    return path === exchange.target ? target : `${target}?${changedQuery(query, exchange)}`;
  };
}

const ENCODED = String.raw`(?:%[C-F][0-9A-F](?:%[89AB][0-9A-F]){1,3}|%..|[^])`;
const FIRST_LETTER = new RegExp(`^${ENCODED}`, 'i');
const LAST_LETTER = new RegExp(`${ENCODED}$`, 'i');
/** A letter has at most four bytes. */
const LONGEST = '%F0%9F%90%98'.length;

/**
 * The path in which a text is searched. Repeated slashes become one, unless the text contains some: what is left of
 * `/files//evil.example` would otherwise name another host.
 */
function merged(path: string, text: string): string {
  return text.includes('//') ? path : mergeSlashes(path);
}

/**
 * A path without a text at its start or end. The text is compared like a matched path: case and encoding do not
 * matter, and neither do slashes that are repeated as `%2F`.
 */
function without(path: string, text: string, side: 'start' | 'end'): string {
  const wanted = Array.from(decodePath(text).toLowerCase());
  const merges = !text.includes('//');
  const whole = merged(path, text);
  const isEncoded = path.includes('%');
  let rest = whole;
  const next = (): string | undefined => {
    if (!isEncoded) return rest.at(side === 'end' ? -1 : 0);
    if (side === 'end') return LAST_LETTER.exec(rest.slice(-LONGEST))?.[0];
    return FIRST_LETTER.exec(rest.slice(0, LONGEST))?.[0];
  };
  const takes = (letter: string): boolean => {
    const found = next();
    if (found === undefined || decodePath(found).toLowerCase() !== letter) return false;
    rest = side === 'end' ? rest.slice(0, -found.length) : rest.slice(found.length);
    return true;
  };
  for (const letter of side === 'end' ? wanted.reverse() : wanted) {
    if (!takes(letter)) return whole;
    if (merges && letter === '/') while (takes('/'));
  }
  return rest;
}

function replace(text: string, wanted: string, replacement: string, limit: number): string {
  if (wanted === '') return text;
  const parts = text.split(wanted);
  const times = limit === 0 ? parts.length - 1 : Math.min(limit, parts.length - 1);
  return (
    parts.slice(0, times + 1).join(replacement) +
    parts
      .slice(times + 1)
      .map((part) => wanted + part)
      .join('')
  );
}
