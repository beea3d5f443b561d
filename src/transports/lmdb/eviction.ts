import { SHARED_PRESENCE_EVENTS_KEPT } from '../../hub/transport.ts';

/** What is kept of a log. */
export interface Retention {
  /** Updates kept; 0 keeps all. Presence events have a bound of their own. */
  readonly size: number;
  /** Milliseconds that an update is kept; 0 keeps it for ever. */
  readonly maxAgeMs: number;
}

/** A log, inside a write transaction. */
export interface EvictableLog {
  /** The first entry at or after a position; null when there is none. */
  first(from: number): Oldest | null;
  /** The oldest presence event; null when there is none. */
  firstEvent(): Oldest | null;
  remove(position: number): void;
}

/** An entry as this process last saw it; others may have evicted it since. */
export interface Oldest {
  readonly position: number;
  readonly at: number;
  /** How many updates there ever were before it, presence events not counted. */
  readonly before: number;
}

/** How far the log has come, with what the transaction adds. */
export interface Extent {
  readonly newest: number;
  /** How many updates there ever were, presence events not counted. */
  readonly updates: number;
  readonly now: number;
  /** How many entries the transaction adds. */
  readonly added: number;
}

/** Evicted beyond what a transaction adds, so that a lowered limit never blocks the process. */
const EXTRA = 256;

/**
 * Removes what exceeds the retention: updates from the front with all that stands before them, and the oldest
 * presence events from wherever they stand. Looks at nothing but what it removes and the entry behind it, and not
 * even at that while the oldest that is known may stay. The newest update and the newest entry stay.
 *
 * @returns the oldest entry that is left, as far as it had to be looked at
 */
export function evict(
  log: EvictableLog,
  { size, maxAgeMs }: Retention,
  { newest, updates, now, added }: Extent,
  known: Oldest | null,
): Oldest | null {
  let left = added + EXTRA;
  const isTooOld = ({ at }: Oldest): boolean => maxAgeMs > 0 && at < now - maxAgeMs;
  // An event goes no earlier than the update behind it: until then nobody who goes on from it misses anything.
  const mustGo = (entry: Oldest): boolean =>
    (size > 0 && entry.before < updates - size) || (entry.before < updates - 1 && isTooOld(entry));
  let oldest = known;
  if (size > 0 || maxAgeMs > 0) {
    oldest ??= log.first(0);
    for (; oldest !== null && left > 0 && mustGo(oldest); left -= 1) {
      // What is known may be gone already; then this finds the next.
      const present = log.first(oldest.position);
      if (present?.position === oldest.position) {
        log.remove(present.position);
        oldest = log.first(present.position + 1);
      } else oldest = present;
    }
  }
  const events = newest - updates;
  if (events === 0 || (events <= SHARED_PRESENCE_EVENTS_KEPT && maxAgeMs === 0)) return oldest;
  for (; left > 0; left -= 1) {
    const event = log.firstEvent();
    if (event === null || event.position === newest) break;
    const nth = event.position - event.before;
    if (nth > events - SHARED_PRESENCE_EVENTS_KEPT && !isTooOld(event)) break;
    log.remove(event.position);
  }
  return oldest;
}
