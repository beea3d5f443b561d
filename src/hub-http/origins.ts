import { compileWildcard } from '../http/wildcard.ts';

/** A list of allowed origins, of which each may hold one `*`. */
export interface OriginList {
  readonly any: boolean;
  /** The entry that allows `origin`; undefined when none does. The origin is compared as given. */
  find(origin: string): string | undefined;
}

export function originList(entries: readonly string[]): OriginList {
  const lower = entries.map((entry) => entry.toLowerCase());
  const exact = new Set(lower.filter((entry) => !entry.includes('*')));
  const wildcards = lower
    .filter((entry) => entry !== '*' && entry.includes('*'))
    .map((entry) => ({ entry, matches: compileWildcard(entry, 'any') }));
  return {
    any: lower.includes('*'),
    find(origin) {
      if (exact.has(origin)) return origin;
      const wildcard = wildcards.find(({ matches }) => matches(origin));
      return wildcard?.entry ?? (lower.includes('*') ? '*' : undefined);
    },
  };
}
