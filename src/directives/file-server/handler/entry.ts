export const SORTS = ['namedirfirst', 'name', 'size', 'time'] as const;

export type Sort = (typeof SORTS)[number];

export interface Entry {
  /** Of a directory with `/` at its end. */
  readonly name: string;
  /** The name in lower case, by which it is sorted. */
  readonly folded: string;
  /** Bytes. */
  readonly size: number;
  readonly modified: Date;
  readonly mode: number;
  readonly isDirectory: boolean;
  readonly isSymlink: boolean;
}

export interface Listing {
  readonly names: readonly string[];
  readonly isComplete: boolean;
  readonly sort: Sort;
  readonly order: 'asc' | 'desc';
}

/** Relative, so that no name is taken for a scheme. */
export function entryUrl(name: string): string {
  const bare = name.endsWith('/') ? name.slice(0, -1) : name;
  return `./${encodeURIComponent(bare)}${bare === name ? '' : '/'}`;
}
