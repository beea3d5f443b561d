import type { Exchange, Expand } from '../http/exchange.ts';
import { canonicalRewrite } from '../http/canonical-target.ts';
import { decodePath, pathOf } from '../http/request-path.ts';
import { PLACEHOLDER, shortName } from './placeholder-names.ts';

/** What `{?query}` has in its braces begins no query. */
export const QUERY_MARK = /(?<!\{)\?/;

/** The target that `to` makes of a request: `/path`, `?query` or both; the part that is not named stays. */
export function rewrittenTarget(template: string, expand: Expand): (exchange: Exchange) => string {
  // A fragment is for clients, and never part of a request (RFC 9110 §7.1).
  const [written = ''] = template.split('#', 1);
  const to = written === '' ? template : written;
  const mark = to.search(QUERY_MARK);
  const path = mark === -1 ? to : to.slice(0, mark);
  const query = mark === -1 ? null : to.slice(mark + 1);
  return (exchange) => {
    const before = pathOf(exchange);
    const beforeQuery = exchange.target.slice(before.length + 1);
    // A placeholder such as {uri} brings a query of its own.
    const [newPath = '', brought = ''] =
      path === '' ? [before] : expand(path, exchange).split(/\?(.*)/s);
    const written = query === null ? beforeQuery : queryFrom(query, exchange, expand);
    const newQuery = query === '' ? brought : written;
    return canonicalRewrite(newQuery === '' ? newPath : `${newPath}?${newQuery}`);
  };
}

/** What stands in them is percent-encoded as the client sent it; all others are plain text. */
const ENCODED = /^(?:orig_)?path$|^dir$|^file$|^path\./;

/**
 * A query as it is written in a configuration, with its placeholders filled in: what one brings is
 * a part of a name or a value, and can begin no other parameter. Only a whole `{query}` between two
 * `&` is as the request has it. What is empty between two `&` is left out.
 */
export function queryFrom(template: string, exchange: Exchange, expand: Expand): string {
  return template
    .split('&')
    .map((part) => {
      if (isWholeQuery(part)) return expand(part, exchange);
      return part.replace(PLACEHOLDER, (placeholder: string, name: string | undefined) => {
        const value = expand(placeholder, exchange);
        // What is not a placeholder, or is a brace, was written so.
        if (name === undefined || value === placeholder) return value;
        return queryEncoded(ENCODED.test(shortName(name)) ? decodePath(value) : value);
      });
    })
    .filter((part) => part !== '')
    .join('&');
}

function isWholeQuery(part: string): boolean {
  return part.startsWith('{') && part.endsWith('}') && shortName(part.slice(1, -1)) === 'query';
}

/** As forms write it: a space is a plus sign. */
function queryEncoded(value: string): string {
  return new URLSearchParams([['', value]]).toString().slice(1);
}
