import type { Exchange } from '../http/exchange.ts';
import type { HeaderList } from '../http/header-list.ts';
import type { ResponseCaches } from './response-caches.ts';
import type { ResponseStore } from './response-store.ts';

/** What the caches of a site need from the gateway. */
export interface CacheContext {
  readonly caches: ResponseCaches;
  /**
   * The store of a cache of the site, by its configuration. It survives a reload that changes nothing which
   * its requests pass.
   */
  readonly openStore: (cache: object, maxBytes: number) => ResponseStore;
  /** Response fields, in lower case, that make a response personal, or one that must be handled once. */
  readonly personalFields: readonly string[];
  /** All names by which the response to a request is purged, except for its tags. */
  readonly namesOf: (exchange: Exchange, headers: HeaderList) => readonly string[];
  /** The names from its tags. */
  readonly namesOfTags: (exchange: Exchange, tags: readonly string[]) => readonly string[];
  /** Drops what a request has changed, in this process, in the other workers and on the other nodes of the hub. */
  readonly changed: (names: readonly string[]) => void;
  /** Whether a request is for the hub. */
  readonly isHubRequest: (exchange: Exchange) => boolean;
}
