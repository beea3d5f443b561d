import type { Exchange, Expand } from '../http/exchange.ts';
import { PLACEHOLDER, shortName } from './placeholder-names.ts';
import { decodePath } from '../http/request-path.ts';

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
        // What is no placeholder, or is a brace, was written so.
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
