import { SHARED_PRESENCE_EVENTS_KEPT } from '../../hub/transport.ts';

/** How much of a history is kept. */
export interface Retention {
  /** Updates to keep; 0 keeps all. Presence events have a limit of their own. */
  readonly size: number;
  /** Milliseconds to keep an update; 0 keeps it for ever. */
  readonly maxAgeMs: number;
}

/** A history inside a write transaction. */
export interface EvictableLog {
  /** The first entry at or after a position; null if there is none. */
  first(from: number): Oldest | null;
  /** The oldest presence event; null if there is none. */
  firstEvent(): Oldest | null;
  remove(position: number): void;
}

/** An entry as this process last saw it. Another process may have evicted it since. */
export interface Oldest {
  readonly position: number;
  readonly at: number;
  /** The number of updates ever stored before it, without presence events. */
  readonly before: number;
}

/** The end of the history, including the entries of this transaction. */
export interface Extent {
  readonly newest: number;
  /** The number of updates ever stored, without presence events. */
  readonly updates: number;
  readonly now: number;
  /** The number of entries that the transaction adds. */
  readonly added: number;
}

/**
 * Entries that one transaction evicts beyond those it adds, so that a lowered limit never blocks the process.
 */
const EXTRA = 256;

/**
 * Removes what exceeds the limits: updates from the front with everything before them, and the oldest
 * presence events wherever they are. It reads only the entries that it removes and the one after them, and
 * not even that while the oldest known entry may stay. The newest update and the newest entry stay.
 *
 * @returns the oldest remaining entry, if it had to be read
 */
export function evict(
  log: EvictableLog,
  { size, maxAgeMs }: Retention,
  { newest, updates, now, added }: Extent,
  known: Oldest | null,
): Oldest | null {
  let left = added + EXTRA;
  const isTooOld = ({ at }: Oldest): boolean => maxAgeMs > 0 && at < now - maxAgeMs;
  // An event is not removed before the update after it. Until then a client that continues from it misses
  // nothing.
  const mustGo = (entry: Oldest): boolean =>
    (size > 0 && entry.before < updates - size) || (entry.before < updates - 1 && isTooOld(entry));
  let oldest = known;
  if (size > 0 || maxAgeMs > 0) {
    oldest ??= log.first(0);
    for (; oldest !== null && left > 0 && mustGo(oldest); left -= 1) {
      // The known entry may be gone already; then this finds the next one.
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
