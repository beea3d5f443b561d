import type { Exchange, ResponseHead } from '../http/exchange.ts';
import { requestUrl } from '../http/request-url.ts';
import { parseUrl } from '../kernel/parse-url.ts';

/**
 * The name by which a topic, a URL or a tag drops what is stored. The scheme of a URL does not count:
 * behind another proxy the gateway may be asked by http for what the app publishes as https.
 */
export function purgeName(text: string): string {
  if (!/^https?:/i.test(text)) return text;
  const url = parseUrl(text);
  return url === null ? text : purgeNameOf(url);
}

/** The same of a URL that has been parsed. */
export function purgeNameOf({ host, pathname, search }: URL): string {
  return `//${host}${pathname}${search}`;
}

/** Methods that change nothing (RFC 9110 §9.2.1, RFC 4918, RFC 10008). */
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'QUERY', 'PROPFIND', 'REPORT']);

/**
 * The names of what is no longer current once a request has changed something (RFC 9111 §4.4): its
 * URL, and those of `Location` and `Content-Location` on the same host. None where it has not.
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
