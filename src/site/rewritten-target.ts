import type { Exchange, Expand } from '../http/exchange.ts';
import { canonicalRewrite } from '../http/canonical-target.ts';
import { decodePath, pathOf } from '../http/request-path.ts';
import { isEncoded, PLACEHOLDER, shortName } from './placeholder-names.ts';

/** The question mark in the braces of `{?query}` begins no query. */
export const QUERY_MARK = /(?<!\{)\?/;

/**
 * The target of a request after a rewrite to `to`: `/path`, `?query` or both. The part that is not given
 * stays.
 */
export function rewrittenTarget(template: string, expand: Expand): (exchange: Exchange) => string {
  // A fragment is for clients, and never part of a request (RFC 9110 §7.1).
  const [written = ''] = template.split('#', 1);
  const to = written === '' ? template : written;
  const mark = to.search(QUERY_MARK);
  const path = mark === -1 ? to : to.slice(0, mark);
  const query = mark === -1 ? null : to.slice(mark + 1);
  const filledPath = (exchange: Exchange): string =>
    path.replace(PLACEHOLDER, (placeholder: string, name: string | undefined) => {
      const value = expand(placeholder, exchange);
      const isFile = name !== undefined && shortName(name) === 'file_match.relative';
      return isFile ? encodedPath(value) : value;
    });
  return (exchange) => {
    const before = pathOf(exchange);
    const beforeQuery = exchange.target.slice(before.length + 1);
    // A placeholder such as {uri} contains a query of its own.
    const [newPath = '', brought = ''] =
      path === '' ? [before] : filledPath(exchange).split(/\?(.*)/s);
    const written = query === null ? beforeQuery : queryFrom(query, exchange, expand);
    const newQuery = query === '' ? brought : written;
    return canonicalRewrite(newQuery === '' ? newPath : `${newPath}?${newQuery}`);
  };
}

/** The path of a file as part of a target: a name may contain a character that would begin a query. */
export function encodedPath(path: string): string {
  return path.replaceAll('%', '%25').replaceAll('?', '%3F').replaceAll('#', '%23');
}

/**
 * A query of the configuration with its placeholders filled in. The value of a placeholder is part of a name
 * or a value, and cannot begin another parameter. Only a whole `{query}` between two `&` is inserted as it is
 * in the request. Empty parts between two `&` are left out.
 *
 * @param escaped whether the values of `{%uri}` and its like stay as they are, instead of being encoded twice
 */
export function queryFrom(
  template: string,
  exchange: Exchange,
  expand: Expand,
  { escaped = false }: { readonly escaped?: boolean } = {},
): string {
  return template
    .split('&')
    .map((part) => {
      if (isWholeQuery(part)) return expand(part, exchange);
      return part.replace(PLACEHOLDER, (placeholder: string, name: string | undefined) => {
        const value = expand(placeholder, exchange);
        // Text that is not a placeholder, or a literal brace, stays as it was written.
        if (name === undefined || value === placeholder) return value;
        if (escaped && shortName(name).startsWith('%')) return value;
        return queryEncoded(isEncoded(shortName(name)) ? decodePath(value) : value);
      });
    })
    .filter((part) => part !== '')
    .join('&');
}

function isWholeQuery(part: string): boolean {
  return part.startsWith('{') && part.endsWith('}') && shortName(part.slice(1, -1)) === 'query';
}

/** A text as a name or a value in a query, encoded as Go does it: a space is a plus sign. */
export function queryEncoded(text: string): string {
  const encoded = new URLSearchParams([['', text]]).toString().slice(1);
  return encoded.replaceAll('%7E', '~').replaceAll('*', '%2A');
}
