import type { Cursor } from '../hubfile/cursor.ts';
import { type DirectiveSyntax, oneStep } from '../hubfile/scope.ts';
import { badValue, count, name, oneOf, text } from '../hubfile/values.ts';
import {
  changeQuery,
  type QueryChange,
  uri as data,
  type UriChange,
  type UriConfig,
} from './uri/query.ts';
import { compilePattern, matchable } from '../http/linear-regexp.ts';
import type { Exchange, Handler } from '../http/exchange.ts';
import { canonicalRewrite } from '../http/canonical-target.ts';
import { decodePath, pathOf } from '../http/request-path.ts';
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

const syntax: DirectiveSyntax = {
  usage: USAGE,
  summary: 'strips, replaces or adds parts of the path or the query',
  read: oneStep((cursor) => ({ kind: 'uri', change: changeOf(cursor) })),
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
  const changes: QueryChange[] = [];
  if (cursor.left > 0 || !cursor.hasBlock) changes.push(queryChange(cursor));
  for (const line of cursor.lines()) {
    cursor.problems.attempt(() => {
      changes.push(queryChange(line, line.name));
      line.end();
    });
  }
  return changes;
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

/** `uri [<matcher>] strip_prefix|strip_suffix|replace|path_regexp|query …` */
function compile({ change }: UriConfig, context: HandlerContext): Handler {
  const retarget = compileChange(change, context);
  return (exchange, next) => {
    exchange.target = canonicalRewrite(retarget(exchange));
    return next();
  };
}

function compileChange(change: UriChange, { expand }: HandlerContext): Retarget {
  switch (change.kind) {
    case 'strip_prefix':
      return ofPath((path, exchange) => withoutPrefix(path, expand(change.text, exchange)));
    case 'strip_suffix':
      return ofPath((path, exchange) => withoutSuffix(path, expand(change.text, exchange)));
    case 'replace':
      return (exchange) => {
        const wanted = expand(change.text, exchange);
        return replace(exchange.target, wanted, expand(change.replacement, exchange), change.limit);
      };
    case 'path_regexp': {
      const replaced = compilePattern(change.pattern).replacer(change.replacement);
      // The replacement stays within the path.
      return ofPath((path, exchange) =>
        replaced(matchable(path), (text) => expand(text, exchange)).replaceAll('?', '%3F'),
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

function ofPath(changed: (path: string, exchange: Exchange) => string): Retarget {
  return (exchange) => {
    const path = pathOf(exchange);
    return changed(path, exchange) + exchange.target.slice(path.length);
  };
}

/**
 * The prefix is compared like a matched path: case, encoding and repeated slashes do not matter. The rest of
 * the path stays unchanged.
 */
function withoutPrefix(path: string, prefix: string): string {
  const wanted = decodePath(prefix.startsWith('/') ? prefix : `/${prefix}`).toLowerCase();
  const merges = !wanted.includes('//');
  let at = 0;
  for (const letter of Buffer.from(wanted, 'utf8').toString('latin1')) {
    const next = letterAt(path, at);
    if (next?.letter !== letter) return path;
    at = merges && letter === '/' ? behindSlashes(path, next.end) : next.end;
  }
  return path.slice(at);
}

function behindSlashes(path: string, start: number): number {
  let at = start;
  for (let next = letterAt(path, at); next?.letter === '/'; next = letterAt(path, at))
    at = next.end;
  return at;
}

/** One byte of a path, in lower case, and the offset of the next one. */
function letterAt(
  path: string,
  at: number,
): { readonly letter: string; readonly end: number } | null {
  if (at >= path.length) return null;
  if (path.charAt(at) !== '%') return { letter: path.charAt(at).toLowerCase(), end: at + 1 };
  const byte = Number.parseInt(path.slice(at + 1, at + 3), 16);
  const letter = String.fromCharCode(byte);
  return { letter: byte < 0x80 ? letter.toLowerCase() : letter, end: at + 3 };
}

function withoutSuffix(path: string, suffix: string): string {
  return suffix !== '' && path.endsWith(suffix) ? path.slice(0, -suffix.length) : path;
}

function replace(target: string, wanted: string, replacement: string, limit: number): string {
  if (wanted === '') return target;
  const parts = target.split(wanted);
  const times = limit === 0 ? parts.length - 1 : Math.min(limit, parts.length - 1);
  return (
    parts.slice(0, times + 1).join(replacement) +
    parts
      .slice(times + 1)
      .map((part) => wanted + part)
      .join('')
  );
}

export const uri: HandlerDirective<UriConfig> = { data, syntax, compile };
