import { HubgateError } from '../../kernel/error.ts';
import type { HubKeys } from './keys.ts';
import { listOf, textOf } from './replies.ts';
import { FORMAT, READ } from './scripts.ts';
import type { Session } from './session.ts';
import { decodeEntry, placeOf, type StoredEntry } from './stored-entry.ts';

/** The last entry of a log; position 0 and no key before the first. */
export interface LogEnd {
  readonly position: number;
  readonly key: string | null;
  readonly id: string | null;
}

/** The log as it lies in Redis: questions, each with one answer, on the session that is named. */
export class StoredLog {
  readonly #keys: HubKeys;

  constructor(keys: HubKeys) {
    this.#keys = keys;
  }

  /** @throws HubgateError `history-too-new` */
  async end(session: Session): Promise<LogEnd> {
    const fields = ['version', 'position', 'key', 'id'];
    const reply = await session.command('HMGET', this.#keys.meta, ...fields);
    const [version, position, key, id] = listOf(reply);
    if (version !== null && Number(version) > FORMAT) {
      throw new HubgateError(
        'history-too-new',
        'The log in Redis was written by a later version of hubgate; run that one',
      );
    }
    return { position: Number(position ?? 0), key: textOf(key), id: textOf(id) };
  }

  /** The earliest kept position of an id; null when there is none. */
  async find(session: Session, eventId: string): Promise<number | null> {
    const found = await session.command('HGET', this.#keys.ids, eventId);
    return typeof found === 'string' ? Number(found) : null;
  }

  /** The key of the entry at a position; null where there is none. */
  async keyAt(session: Session, position: number): Promise<string | null> {
    const place = placeOf(position);
    const [entry] = listOf(await session.command('XRANGE', this.#keys.log, place, place));
    return entry === undefined ? null : decodeEntry(entry).key;
  }

  /** From the first of two positions to the second, as many as `limit` and `bytes` allow. */
  async page(
    session: Session,
    [first, last]: readonly [first: number, last: number],
    limit: number,
    bytes: number,
  ): Promise<readonly StoredEntry[]> {
    const range = [placeOf(first), placeOf(last), String(limit), finite(bytes)];
    return listOf(await session.run(READ, [this.#keys.log], range)).map(decodeEntry);
  }

  /** The newest from the first of two positions to the second, oldest first, at most `limit`. */
  async newest(
    session: Session,
    [first, last]: readonly [first: number, last: number],
    limit: number,
  ): Promise<readonly StoredEntry[]> {
    if (first > last) return [];
    const reply = await session.command(
      ...['XREVRANGE', this.#keys.log, placeOf(last), placeOf(first)],
      ...['COUNT', String(limit)],
    );
    return listOf(reply).toReversed().map(decodeEntry);
  }
}

/** Lua reads no Infinity. */
function finite(bytes: number): string {
  return String(Math.min(bytes, Number.MAX_SAFE_INTEGER));
}
