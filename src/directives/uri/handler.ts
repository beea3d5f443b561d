import { compilePattern, matchable } from '../../http/linear-regexp.ts';
import type { Exchange, Handler } from '../../http/exchange.ts';
import { canonicalRewrite } from '../../http/canonical-target.ts';
import { decodePath, pathOf } from '../../http/request-path.ts';
import type { HandlerContext } from '../../site/handler-context.ts';
import type { UriChange, UriConfig } from './data.ts';
import { changeQuery } from './handler/query.ts';

/** The new target of a request. */
type Retarget = (exchange: Exchange) => string;

/** `uri [<matcher>] strip_prefix|strip_suffix|replace|path_regexp|query …` */
export function uri({ change }: UriConfig, context: HandlerContext): Handler {
  const retarget = compile(change, context);
  return (exchange, next) => {
    exchange.target = canonicalRewrite(retarget(exchange));
    return next();
  };
}

function compile(change: UriChange, { expand }: HandlerContext): Retarget {
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
      // What comes into the path stays in it.
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
 * The prefix counts whatever its case and encoding and however often a slash stands there, as it did
 * when the path was matched. What comes behind it stays as it is.
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

/** One byte of a path, in lower case, and where the next one begins. */
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
