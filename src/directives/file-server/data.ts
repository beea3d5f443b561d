import type { HandlerData } from '../../config/routes.ts';
import {
  defaultsOf,
  list,
  object,
  type Of,
  optional,
  section,
  withDefault,
} from '../../config/shape.ts';
import { count, flag, name, names, oneOf, statusValue } from '../../config/shape-values.ts';

export const LISTING_SORTS = ['namedirfirst', 'name', 'size', 'time'] as const;
export const LISTING_ORDERS = ['asc', 'desc'] as const;
/** Most entries of a directory that are listed. The page only mentions that there are more. */
export const MAX_LISTED = 10_000;

const listingMembers = {
  sort: withDefault(oneOf(...LISTING_SORTS), 'namedirfirst'),
  order: withDefault(oneOf(...LISTING_ORDERS), 'asc'),
  /** Entries that are listed. */
  limit: withDefault(count({ min: 1, max: MAX_LISTED }), MAX_LISTED),
};

export interface ListingSettings extends Of<typeof listingMembers> {}

export const PRECOMPRESSED = ['br', 'zstd', 'gzip'] as const;

export type Precompressed = (typeof PRECOMPRESSED)[number];

export const members = {
  /** null: the `root` of the site. */
  root: optional(name('a directory')),
  index: withDefault(names('a file name'), ['index.html']),
  hide: withDefault(names('a file name or path'), []),
  /** Whether a directory without an index is listed. */
  browse: withDefault(flag, false),
  /** How a directory is listed, unless the query says it. */
  listing: section<ListingSettings>(listingMembers),
  /** Encodings whose files are next to the plain ones, in the order of preference. */
  precompressed: withDefault(list(oneOf(...PRECOMPRESSED)), []),
  /** Status of every response with a file; null: according to the request. */
  status: optional(statusValue({ min: 200, max: 599 })),
  /** Whether a request for a missing file is passed on instead of failing. */
  passThru: withDefault(flag, false),
  /** Whether directories end with a slash, and files do not: others are redirected. */
  canonicalUris: withDefault(flag, true),
};

export interface FileServerConfig extends Of<typeof members> {
  readonly kind: 'file_server';
}

export const defaultFileServer: FileServerConfig = { kind: 'file_server', ...defaultsOf(members) };

export const fileServer: HandlerData<FileServerConfig> = {
  answersAll: ({ passThru }) => !passThru,
  shape: () => object(members),
};
