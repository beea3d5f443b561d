import type { Evicted } from '../../hub/transport.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { HubKeys } from './keys.ts';
import {
  decodeUpdate,
  encodeBody,
  type EntryMark,
  type HistoryEnd,
  type Range,
  type StoredEntry,
} from '../stored-entry.ts';
import { FORMAT, MARKS, READ } from './scripts.ts';
import type { Session } from './session.ts';
import type { Update } from '../../hub/update.ts';

/** The history as stored in Redis. Each method is one query on the given session. */
export class StoredHistory {
  readonly #keys: HubKeys;

  constructor(keys: HubKeys) {
    this.#keys = keys;
  }

  /** @throws HubgateError `history-too-new` */
  async end(session: Session): Promise<HistoryEnd> {
    const fields = ['version', 'position', 'key', 'id', 'update'];
    const reply = await session.command('HMGET', this.#keys.meta, ...fields);
    const [version, position, key, id, update] = listOf(reply);
    if (version !== null && Number(version) > FORMAT) {
      throw new HubgateError(
        'history-too-new',
        'The history in Redis was written by a later version of hubgate; run that one',
      );
    }
    if (position === null) return this.#lastEntry(session);
    return {
      position: Number(position),
      key: textOf(key),
      id: textOf(id),
      updateId: textOf(update),
    };
  }

  /** The end as the entries show it: the server may have evicted the other key. */
  async #lastEntry(session: Session): Promise<HistoryEnd> {
    const { log } = this.#keys;
    const [newest] = listOf(await session.command('XREVRANGE', log, '+', '-', 'COUNT', '1'));
    if (newest === undefined) return { position: 0, key: null, id: null, updateId: null };
    const { position, key, update } = decodeEntry(newest);
    const { id } = update;
    return { position, key, id, updateId: update.presence === true ? null : id };
  }

  /** The earliest kept position of an id; null if there is none. */
  async find(session: Session, eventId: string): Promise<number | null> {
    const found = await session.command('HGET', this.#keys.ids, eventId);
    return typeof found === 'string' ? Number(found) : null;
  }

  /** Positions of the newest evicted entries. */
  async evicted(session: Session): Promise<Evicted> {
    const { meta, log } = this.#keys;
    const reply = await session.command('HMGET', meta, 'evictedUpdates', 'evictedEvents');
    const [updates, events] = listOf(reply).map(textOf);
    if (updates !== null && updates !== undefined) {
      return { updates: Number(updates), events: Number(events ?? 0) };
    }
    // The server may have evicted that key. Missing entries at the front were evicted from the history.
    const [oldest] = listOf(await session.command('XRANGE', log, '-', '+', 'COUNT', '1'));
    return { updates: oldest === undefined ? 0 : decodeEntry(oldest).position - 1, events: 0 };
  }

  /** Reads from the first of two positions to the second, as far as `limit` and `bytes` allow. */
  async page(
    session: Session,
    [first, last]: Range,
    limit: number,
    bytes: number,
  ): Promise<readonly StoredEntry[]> {
    const range = [placeOf(first), placeOf(last), String(limit), finite(bytes)];
    return listOf(await session.run(READ, [this.#keys.log], range)).map(decodeEntry);
  }

  /** The newest entries between two positions without their bodies, oldest first, at most `limit`. */
  async newest(
    session: Session,
    [first, last]: Range,
    limit: number,
  ): Promise<readonly EntryMark[]> {
    if (first > last) return [];
    const range = [placeOf(last), placeOf(first), String(limit)];
    const reply = await session.run(MARKS, [this.#keys.log], range);
    return listOf(reply)
      .map((mark) => listOf(mark).map(String))
      .map(([place = '', key = '', id = '', kind]) => {
        return { position: Number.parseInt(place, 10), key, id, isEvent: kind === 'e' };
      })
      .toReversed();
  }
}

/** Lua cannot parse Infinity. */
function finite(bytes: number): string {
  return String(Math.min(bytes, Number.MAX_SAFE_INTEGER));
}

/** An update as arguments of the append script. */
export function appendArguments(update: Update): readonly [id: string, body: string, kind: string] {
  const kind = update.presence === true ? '1' : update.once === true ? 'o' : '';
  return [update.id, encodeBody(update), kind];
}

/** @throws HubgateError `history-damaged` */
export function decodeEntry(reply: unknown): StoredEntry {
  try {
    // The format of the append script: k, p, a, i, u with their values, and e for a presence event.
    const [place, fields] = reply as [string, string[]];
    const [, key = '', , previous = '', , at = '', , id = '', , body = '', mark] = fields;
    const update = decodeUpdate(id, body, mark === 'e');
    return { position: Number.parseInt(place, 10), key, previous, at: Number(at), update };
  } catch (cause) {
    throw new HubgateError('history-damaged', 'an entry of the stream is not one of a hub', {
      cause,
    });
  }
}

/** The stream id for a position. */
export function placeOf(position: number): string {
  return `${position}-1`;
}

/** The elements of a reply that is a list; empty for any other reply. */
export function listOf(reply: unknown): readonly unknown[] {
  return Array.isArray(reply) ? reply : [];
}

function textOf(reply: unknown): string | null {
  return typeof reply === 'string' ? reply : null;
}
