import type { Evicted, LogEntry } from '../../hub/transport.ts';
import { isPossibleId, type Update } from '../../hub/update.ts';
import type { EvictableLog, Oldest } from './eviction.ts';
import type { LmdbStore, Tail } from './lmdb-store.ts';
import { encodeStored, storedHead, type StoredHead } from './stored-update.ts';

const EMPTY: Tail = {
  position: 0,
  eventId: '',
  updates: 0,
  updateId: '',
  evicted: { updates: 0, events: 0 },
};

/** Appends entries inside a write transaction; returns their positions. */
export function addEntries(
  { log, ids, events, tail, expectEvents }: LmdbStore,
  entries: readonly { readonly update: Update; readonly at: number }[],
): { readonly stored: readonly LogEntry[]; readonly end: Tail } {
  let end = tail.get() ?? EMPTY;
  const stored = entries.flatMap(({ update, at }) => {
    if (update.once === true && ids.doesExist(update.id)) return [];
    const isEvent = update.presence === true;
    const position = end.position + 1;
    log.putSync(position, encodeStored(update, at, position, end.updates));
    if (isPossibleId(update.id)) ids.putSync(update.id, position);
    if (isEvent) events.putSync(position, true);
    end = { ...end, position, eventId: update.id };
    if (!isEvent) end = { ...end, updates: end.updates + 1, updateId: update.id };
    return [{ position, update }];
  });
  if (entries.some(({ update }) => update.presence === true)) expectEvents();
  if (stored.length > 0) tail.put(end);
  return { stored, end };
}

/** The history for eviction, inside a write transaction. Removed entries are noted in `evicted`. */
export function evictableLog(
  { log, ids, events }: LmdbStore,
  evicted: { -readonly [Kind in keyof Evicted]: number },
): EvictableLog {
  return {
    first(from) {
      for (const { key, value } of log.getRange({ start: from, limit: 1 })) {
        return oldestOf(key, storedHead(value, key));
      }
      return null;
    },
    firstEvent() {
      for (const key of events.getKeys({ limit: 1 })) {
        const bytes = log.get(key);
        // An event that LMDB has lost counts as the very first one, and is removed from the list.
        if (bytes === undefined) return { position: key, at: 0, before: key };
        return oldestOf(key, storedHead(bytes, key));
      }
      return null;
    },
    remove(position) {
      const bytes = log.get(position);
      log.removeSync(position);
      const isEvent = events.removeSync(position);
      if (isEvent) evicted.events = Math.max(evicted.events, position);
      else evicted.updates = Math.max(evicted.updates, position);
      if (bytes !== undefined) ids.removeSync(storedHead(bytes, position).id, position);
    },
  };
}

/**
 * Whether the missing entries directly before an entry were evicted: either they are at the front, or they
 * are presence events that are older than any that is kept. LMDB has lost all other missing entries.
 *
 * @param before the last entry before the missing ones; null if there is none
 * @param oldestEvent position of the oldest presence event that is kept; null if there is none
 */
export function isEvicted(
  entry: { readonly position: number; readonly head: StoredHead },
  before: StoredHead | null,
  oldestEvent: number | null,
): boolean {
  if (before === null) return true;
  const updates = entry.head.before - before.before - (before.isEvent ? 0 : 1);
  return updates === 0 && (oldestEvent === null || oldestEvent >= entry.position);
}

function oldestOf(position: number, { at, before }: StoredHead): Oldest {
  return { position, at, before };
}
