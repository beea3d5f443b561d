import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { requestUrl } from '../http/request-path.ts';
import { parseUrl } from '../kernel/parse-url.ts';

/**
 * The name by which a topic, a URL or a tag purges stored responses. The scheme of a URL is ignored: behind
 * another proxy, the gateway may receive requests over http for what the app publishes as https.
 */
export function purgeName(text: string): string {
  if (text.startsWith('/')) return withCanonicalEscapes(text);
  if (!/^https?:/i.test(text)) return text;
  const url = parseUrl(text);
  return url === null ? text : purgeNameOf(url);
}

/** The same for a parsed URL. */
export function purgeNameOf({ host, pathname, search }: URL): string {
  return withCanonicalEscapes(`//${host}${pathname}${search}`);
}

/** `%c3` and `%C3`, `%7E` and `~` name the same page (RFC 3986 §6.2.2). */
function withCanonicalEscapes(text: string): string {
  return text.replaceAll(/%([0-9a-f]{2})/gi, (escape, digits: string) => {
    const character = String.fromCharCode(Number.parseInt(digits, 16));
    return /[\w.~-]/.test(character) ? character : escape.toUpperCase();
  });
}

/** Methods that change nothing (RFC 9110 §9.2.1, RFC 4918, RFC 10008). */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'QUERY', 'PROPFIND', 'REPORT']);

/**
 * The names of what is no longer current after a request has changed something (RFC 9111 §4.4): its URL, and
 * those of `Location` and `Content-Location` on the same host. Empty if it has changed nothing.
 */
export function changedNames(
  exchange: Exchange,
  { status, headers }: ResponseHead,
): readonly string[] {
  if (SAFE_METHODS.has(exchange.method) || status < 200 || status >= 400) return [];
  const asked = requestUrl(exchange);
  if (asked === null) return [];
  const others = ['location', 'content-location'].map((name) =>
    parseUrl(headers.get(name) ?? '', asked.href),
  );
  const urls = [asked, ...others].filter((url) => url !== null && url.host === asked.host);
  return urls.flatMap((url) => (url === null ? [] : [purgeNameOf(url)]));
}
