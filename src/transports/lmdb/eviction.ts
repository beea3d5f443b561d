/** What is kept of a log. */
export interface Retention {
  /** Updates kept; 0 keeps all. */
  readonly size: number;
  /** Milliseconds that an update is kept; 0 keeps it for ever. */
  readonly maxAgeMs: number;
}

/** The front of a log, inside a write transaction. */
export interface EvictableLog {
  /** The first entry at or after a position; null when there is none. */
  first(from: number): { readonly position: number; readonly at: number } | null;
  remove(position: number): void;
}

/** The oldest entry as this process last saw it; others may have evicted it since. */
export interface Oldest {
  readonly position: number;
  readonly at: number;
}

/** Evicted beyond what a transaction adds, so that a lowered limit never blocks the process. */
const EXTRA = 256;

/**
 * Removes what exceeds the retention, oldest first. Looks at nothing but what it removes and the
 * entry behind it, and not even at that while the oldest that is known may stay.
 *
 * @param added how many entries the transaction has added
 * @returns the oldest entry that is left, as far as it had to be looked at
 */
export function evict(
  log: EvictableLog,
  { size, maxAgeMs }: Retention,
  { newest, now, added }: { readonly newest: number; readonly now: number; readonly added: number },
  known: Oldest | null,
): Oldest | null {
  if (size === 0 && maxAgeMs === 0) return known;
  const mustGo = ({ position, at }: Oldest): boolean =>
    position < newest &&
    ((size > 0 && position <= newest - size) || (maxAgeMs > 0 && at < now - maxAgeMs));
  let oldest = known ?? log.first(0);
  for (let left = added + EXTRA; oldest !== null && left > 0 && mustGo(oldest); left -= 1) {
    // What is known may be gone already; then this finds the next.
    const present = log.first(oldest.position);
    if (present?.position === oldest.position) {
      log.remove(present.position);
      oldest = log.first(present.position + 1);
    } else oldest = present;
  }
  return oldest;
}
