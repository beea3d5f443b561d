/** A list of allowed origins, of which each may hold one `*`. */
export interface OriginList {
  readonly any: boolean;
  /** The entry that allows `origin`; undefined when none does. The origin is compared as given. */
  find(origin: string): string | undefined;
}

export function originList(entries: readonly string[]): OriginList {
  const lower = entries.map((entry) => entry.toLowerCase());
  const exact = new Set(lower.filter((entry) => !entry.includes('*')));
  const wildcards = lower.filter((entry) => entry !== '*' && entry.includes('*'));
  return {
    any: lower.includes('*'),
    find(origin) {
      if (exact.has(origin)) return origin;
      const wildcard = wildcards.find((entry) => matchesWildcard(entry, origin));
      return wildcard ?? (lower.includes('*') ? '*' : undefined);
    },
  };
}

function matchesWildcard(entry: string, origin: string): boolean {
  const star = entry.indexOf('*');
  const [prefix, suffix] = [entry.slice(0, star), entry.slice(star + 1)];
  return (
    origin.length >= prefix.length + suffix.length &&
    origin.startsWith(prefix) &&
    origin.endsWith(suffix)
  );
}
