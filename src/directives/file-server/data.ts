import type { HandlerData } from '../../config/routes.ts';
import { list, nullable, object } from '../../config/shape.ts';
import {
  count,
  flag,
  name,
  oneOf,
  statusValue,
  type StatusValue,
} from '../../config/shape-values.ts';

export interface FileServerConfig {
  readonly kind: 'file_server';
  /** null: the `root` of the site. */
  readonly root: string | null;
  readonly index: readonly string[];
  readonly hide: readonly string[];
  /** Whether a directory without an index is listed. */
  readonly browse: boolean;
  /** How a directory is listed, unless the query says it. */
  readonly listing: ListingSettings;
  /** Encodings whose files are next to the plain ones, in the order of preference. */
  readonly precompressed: readonly Precompressed[];
  /** Status of every response with a file; null: according to the request. */
  readonly status: StatusValue | null;
  /** Whether a request for a missing file is passed on instead of failing. */
  readonly passThru: boolean;
  /** Whether directories end with a slash, and files do not: others are redirected. */
  readonly canonicalUris: boolean;
}

export const LISTING_SORTS = ['namedirfirst', 'name', 'size', 'time'] as const;
export const LISTING_ORDERS = ['asc', 'desc'] as const;
/** Most entries of a directory that are listed. The page only mentions that there are more. */
export const MAX_LISTED = 10_000;

export interface ListingSettings {
  readonly sort: (typeof LISTING_SORTS)[number];
  readonly order: (typeof LISTING_ORDERS)[number];
  /** Entries that are listed. */
  readonly limit: number;
}

const defaultListing: ListingSettings = { sort: 'namedirfirst', order: 'asc', limit: MAX_LISTED };

export const PRECOMPRESSED = ['br', 'zstd', 'gzip'] as const;

export type Precompressed = (typeof PRECOMPRESSED)[number];

export const defaultFileServer: FileServerConfig = {
  kind: 'file_server',
  root: null,
  index: ['index.html'],
  hide: [],
  browse: false,
  listing: defaultListing,
  precompressed: [],
  status: null,
  passThru: false,
  canonicalUris: true,
};

const { kind: _kind, ...defaults } = defaultFileServer;

export const fileServer: HandlerData<FileServerConfig> = {
  answersAll: ({ passThru }) => !passThru,
  shape: () =>
    object(
      {
        root: nullable(name('a directory')),
        index: list(name('a file name')),
        hide: list(name('a file name or path')),
        browse: flag,
        listing: object<ListingSettings>(
          {
            sort: oneOf(...LISTING_SORTS),
            order: oneOf(...LISTING_ORDERS),
            limit: count({ min: 1, max: MAX_LISTED }),
          },
          defaultListing,
        ),
        precompressed: list(oneOf(...PRECOMPRESSED)),
        status: nullable(statusValue({ min: 200, max: 599 })),
        passThru: flag,
        canonicalUris: flag,
      },
      defaults,
    ),
};
