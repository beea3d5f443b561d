import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { ArrivingBytes } from './arriving-body.ts';
import type { ResponseCaches } from './response-caches.ts';
import type { ResponseStore } from './response-store.ts';

/** What the caches of a site need of the gateway that they are part of. */
export interface CacheContext {
  readonly caches: ResponseCaches;
  /** Of all bodies that arrive in this process. */
  readonly memory: ArrivingBytes;
  /** The next store of the site, in the order in which its caches stand; it outlives a reload that leaves the site as it is. */
  readonly openStore: (maxBytes: number) => ResponseStore;
  /** Fields of answers, in lower case, that make one that of one client, or one to be handled once. */
  readonly personalFields: readonly string[];
  /** All names by which an answer to a request is purged, but for its tags. */
  readonly namesOf: (exchange: Exchange, headers: HeaderList) => readonly string[];
  /** The names that its tags give it. */
  readonly namesOfTags: (exchange: Exchange, tags: readonly string[]) => readonly string[];
  /** Forgets what a request has changed, here and at the siblings. */
  readonly changed: (names: readonly string[]) => void;
  /** Whether a request is the hub's own. */
  readonly isHubRequest: (exchange: Exchange) => boolean;
}
