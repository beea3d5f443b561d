import { crc32 } from 'node:zlib';
import { type Update, isPossibleId } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';
import {
  type Evicted,
  type HistoryEntry,
  SHARED_PRESENCE_EVENTS_KEPT,
} from '../../hub/transport.ts';
import { decodeUpdate, encodeBody } from '../stored-entry.ts';
import type { DatedUpdate } from '../history.ts';
import type { LmdbStore, Tail } from './lmdb-store.ts';

/*
 * version   1 byte
 * accepted  8 bytes, milliseconds since the Unix epoch as a double
 * checksum  4 bytes, CRC-32 of everything else
 * id        2 bytes of length; its text, in UTF-8, follows the fields of version 2
 * kind      1 byte, only in version 2: 1 for a presence event
 * before    8 bytes, only in version 2: number of updates ever stored before it, as a double
 * body      JSON: [topics, data, private, type, retry]
 *
 * The id comes first, so that eviction does not decode the update. The checksum is needed because LMDB has
 * none: a flipped bit must not reach a subscriber. Version 1 is written if all entries before it are updates.
 */
const VERSION = 1;
const VERSION_WITH_EVENTS = 2;
const CHECKSUM_AT = 9;
const ID_AT = 13;
const KIND_AT = 15;
const BEFORE_AT = 16;
const TEXT_AT = 15;
const TEXT_WITH_EVENTS_AT = 24;

/** The properties of an entry that eviction and the search for damage need. */
export interface StoredHead {
  readonly id: string;
  readonly at: number;
  /** The number of updates ever stored before it, without presence events. */
  readonly before: number;
  readonly isEvent: boolean;
}

/** @param before the number of updates ever stored before it, without presence events */
function encodeStored(update: Update, at: number, position: number, before: number): Buffer {
  const { id, presence } = update;
  const isPlain = presence !== true && before === position - 1;
  const textAt = isPlain ? TEXT_AT : TEXT_WITH_EVENTS_AT;
  const text = id + encodeBody(update);
  const bytes = Buffer.allocUnsafe(textAt + Buffer.byteLength(text));
  bytes[0] = isPlain ? VERSION : VERSION_WITH_EVENTS;
  bytes.writeDoubleBE(at, 1);
  bytes.writeUInt16BE(Buffer.byteLength(id), ID_AT);
  if (!isPlain) {
    bytes[KIND_AT] = presence === true ? 1 : 0;
    bytes.writeDoubleBE(before, BEFORE_AT);
  }
  bytes.write(text, textAt);
  bytes.writeUInt32BE(checksum(bytes), CHECKSUM_AT);
  return bytes;
}

/** @throws HubgateError `history-damaged`, `history-too-new` */
export function decodeStored(bytes: Buffer): DatedUpdate {
  const [version = 0] = bytes;
  if (version > VERSION_WITH_EVENTS && checksumFits(bytes)) {
    throw new HubgateError('history-too-new', 'an update was stored by a later version of hubgate');
  }
  if (version < VERSION || version > VERSION_WITH_EVENTS || !checksumFits(bytes)) {
    throw new HubgateError('history-damaged', 'an update does not have the checksum it was given');
  }
  const { id, at, isEvent } = storedHead(bytes, 0);
  const body = bytes.toString('utf8', textStart(bytes) + bytes.readUInt16BE(ID_AT));
  // encodeStored wrote it, as the checksum shows.
  return { update: decodeUpdate(id, body, isEvent), at };
}

/** Only the head, without reading the rest. */
export function storedHead(bytes: Buffer, position: number): StoredHead {
  const start = textStart(bytes);
  const hasEvents = start === TEXT_WITH_EVENTS_AT;
  const before = hasEvents && bytes.length >= start ? bytes.readDoubleBE(BEFORE_AT) : position - 1;
  if (bytes.length < start) return { id: '', at: 0, before, isEvent: false };
  const id = bytes.toString('utf8', start, start + bytes.readUInt16BE(ID_AT));
  return { id, at: bytes.readDoubleBE(1), before, isEvent: hasEvents && bytes[KIND_AT] === 1 };
}

function textStart(bytes: Buffer): number {
  return bytes[0] === VERSION_WITH_EVENTS ? TEXT_WITH_EVENTS_AT : TEXT_AT;
}

function checksumFits(bytes: Buffer): boolean {
  return bytes.length >= TEXT_AT && bytes.readUInt32BE(CHECKSUM_AT) === checksum(bytes);
}

function checksum(bytes: Buffer): number {
  return crc32(bytes.subarray(ID_AT), crc32(bytes.subarray(0, CHECKSUM_AT)));
}

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
  entries: readonly DatedUpdate[],
): { readonly stored: readonly HistoryEntry[]; readonly end: Tail } {
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
export function evictableHistory(
  { log, ids, events }: LmdbStore,
  evicted: { -readonly [Kind in keyof Evicted]: number },
): EvictableHistory {
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

/** How much of a history is kept. */
export interface Retention {
  /** Updates to keep; 0 keeps all. Presence events have a limit of their own. */
  readonly size: number;
  /** Milliseconds to keep an update; 0 keeps it for ever. */
  readonly maxAgeMs: number;
}

/** A history inside a write transaction. */
export interface EvictableHistory {
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
  history: EvictableHistory,
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
    oldest ??= history.first(0);
    for (; oldest !== null && left > 0 && mustGo(oldest); left -= 1) {
      // The known entry may be gone already; then this finds the next one.
      const present = history.first(oldest.position);
      if (present?.position === oldest.position) {
        history.remove(present.position);
        oldest = history.first(present.position + 1);
      } else oldest = present;
    }
  }
  const events = newest - updates;
  if (events === 0 || (events <= SHARED_PRESENCE_EVENTS_KEPT && maxAgeMs === 0)) return oldest;
  for (; left > 0; left -= 1) {
    const event = history.firstEvent();
    if (event === null || event.position === newest) break;
    const nth = event.position - event.before;
    if (nth > events - SHARED_PRESENCE_EVENTS_KEPT && !isTooOld(event)) break;
    history.remove(event.position);
  }
  return oldest;
}
