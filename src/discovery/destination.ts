import type { HeaderList } from '../http/header-list.ts';

/** Documents and fetches (W3C Fetch Metadata §2.1), not images, scripts, styles and fonts. */
export const DESTINATION = 'Sec-Fetch-Dest';
const OF_PAGES = new Set(['document', 'iframe', 'frame', 'empty']);

/** Whether a request may be for a page, as far as the client says. */
export function isDestinationOfPages(headers: HeaderList): boolean {
  const destination = headers.get(DESTINATION);
  return destination === undefined || OF_PAGES.has(destination.toLowerCase());
}
