import { HttpError } from './errors.ts';
import type { Exchange, Expand } from './exchange.ts';
import { parseUrl } from '../kernel/parse.ts';
import type { HeaderList } from './header-list.ts';

/** The path of a target in its encoded form. */
export function pathOf({ target }: Pick<Exchange, 'target'>): string {
  const query = target.indexOf('?');
  return query === -1 ? target : target.slice(0, query);
}

/**
 * The path for matchers: decoded, and with one slash in place of several, because upstreams may read
 * `//admin` and `/%61dmin` as `/admin`. Dot segments were already removed from the target.
 */
export function matchedPath(exchange: Pick<Exchange, 'target'>): string {
  return mergeSlashes(decodePath(pathOf(exchange)));
}

export function mergeSlashes(path: string): string {
  return path.includes('//') ? path.replace(/\/{2,}/g, '/') : path;
}

/** Whether a request is for a path, with the semantics of the matcher `path`. */
export function isAt(path: string): (exchange: Pick<Exchange, 'target'>) => boolean {
  const own = mergeSlashes(decodePath(path)).toLowerCase();
  return (exchange) => {
    const matched = matchedPath(exchange);
    return !beginsOtherwise(matched, own) && matched.toLowerCase() === own;
  };
}

/** The same for a path and everything below it. */
export function isWithin(path: string): (exchange: Pick<Exchange, 'target'>) => boolean {
  const own = mergeSlashes(decodePath(path)).toLowerCase();
  return (exchange) => {
    const matched = matchedPath(exchange);
    if (beginsOtherwise(matched, own)) return false;
    return `${matched.toLowerCase()}/`.startsWith(`${own}/`);
  };
}

/**
 * Whether a path differs from a lower-case one in its first letter, as nearly every path does from that of a
 * hub. That costs no lower-case copy of it.
 */
function beginsOtherwise(path: string, own: string): boolean {
  const letter = path.charCodeAt(1);
  // Only an ASCII letter is its own lower-case form or the one 32 places after it.
  if (letter >= 0x80 || own.length < 2) return false;
  const lower = letter >= 0x41 && letter <= 0x5a ? letter + 0x20 : letter;
  return lower !== own.charCodeAt(1);
}

/** The value of `root`, which has passed {@link directoryOf} itself, as the start of another directory. */
const ROOT = /^\{(?:http\.)?vars\.root\}$/;

/** What no directory contains. */
const NUL = '\0';

/**
 * Fills in the placeholders of a directory. The text of the operator may lead upwards, but a value may not: clients
 * choose most values. The result is no directory if a value leads upwards or names none; see {@link rootOf}.
 */
export function directoryOf(template: string, exchange: Exchange, expand: Expand): string {
  if (!template.includes('{')) return template;
  const parts = template.split('/').map((part, index) => {
    if (!part.includes('{')) return part;
    const names = expand(part, exchange);
    if (names !== '' && index === 0 && ROOT.test(part)) return names;
    const segments = names.split('/');
    const isEmpty = segments.every((segment) => segment === '' || segment === '.');
    return isEmpty || segments.includes('..') ? NUL : names;
  });
  return parts.join('/');
}

/**
 * The directory of a site's files: that of a handler, or the one that `root` has set.
 *
 * @throws HttpError 404 if it is none
 */
export function rootOf(template: string | null, exchange: Exchange, expand: Expand): string {
  const directory =
    template === null
      ? (exchange.variables.get('root') ?? '.')
      : directoryOf(template, exchange, expand);
  if (!directory.includes(NUL)) return directory;
  throw new HttpError(404, 'a placeholder of the root leads upwards or names no directory');
}

/** A path without percent-encoding, as far as it can be decoded. */
export function decodePath(path: string): string {
  if (!path.includes('%')) return path;
  try {
    return decodeURIComponent(path);
  } catch {
    return decodedByBytes(path);
  }
}

/** Not UTF-8, or not a valid encoding: decodes what can be decoded, byte by byte. */
function decodedByBytes(path: string): string {
  const parts = path.split('%');
  return parts
    .map((part, index) => {
      if (index === 0) return part;
      const byte = ESCAPED.get(part.slice(0, 2));
      return byte === undefined ? `%${part}` : byte + part.slice(2);
    })
    .join('');
}

const DIGITS = Array.from('0123456789ABCDEFabcdef');

/** The byte for each pair of hexadecimal digits, in upper or lower case. */
const ESCAPED: ReadonlyMap<string, string> = new Map(
  DIGITS.flatMap((high) =>
    DIGITS.map((low) => {
      const hex = high + low;
      return [hex, String.fromCharCode(Number.parseInt(hex, 16))] as const;
    }),
  ),
);

/**
 * Splits a path after the first name with one of these ends, in any case of ASCII letters. Without one, the rest is
 * empty.
 */
export function splitAfter(path: string, ends: readonly string[]): [head: string, rest: string] {
  const lower = asciiLowerCase(path);
  for (const end of ends) {
    const wanted = asciiLowerCase(end);
    for (let at = lower.indexOf(wanted); at !== -1; at = lower.indexOf(wanted, at + 1)) {
      const after = at + wanted.length;
      // In `/a.phpx/b`, no name ends with .php.
      if (after === path.length || path[after] === '/') {
        return [path.slice(0, after), path.slice(after)];
      }
    }
  }
  return [path, ''];
}

/** Keeps the place of each character, which `toLowerCase` moves: the lower-case form of `İ` has two. */
function asciiLowerCase(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** The URL with which the gateway was requested; null for a target that is not a path. */
export function requestUrl({ scheme, originalHost, originalTarget }: Exchange): URL | null {
  const text = `${scheme}://${originalHost}${originalTarget}`;
  return originalTarget.startsWith('/') ? parseUrl(text) : null;
}

/** Documents and fetches (W3C Fetch Metadata §2.1), not images, scripts, styles and fonts. */
export const DESTINATION = 'Sec-Fetch-Dest';
const OF_PAGES = new Set(['document', 'iframe', 'frame', 'empty']);

/** Whether a request may be for a page, according to the client. */
export function isDestinationOfPages(headers: HeaderList): boolean {
  const destination = headers.get(DESTINATION);
  return destination === undefined || OF_PAGES.has(destination.toLowerCase());
}
