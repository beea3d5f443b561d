import type { Exchange } from './exchange.ts';
import { parseUrl } from '../kernel/parse-url.ts';
import type { HeaderList } from './header-list.ts';

/** The URL with which the gateway was requested; null for a target that is not a path. */
export function requestUrl({ scheme, host, originalTarget }: Exchange): URL | null {
  const text = `${scheme}://${host}${originalTarget}`;
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
