import type { Exchange } from '../http/exchange.ts';
import { parseUrl } from '../kernel/parse-url.ts';

/** The URL of a request as the gateway was asked for it; null for a target that is no path. */
export function requestUrl({ scheme, host, originalTarget }: Exchange): URL | null {
  const text = `${scheme}://${host}${originalTarget}`;
  return originalTarget.startsWith('/') ? parseUrl(text) : null;
}
