import type { Update } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Row } from '../../postgres/connection.ts';
import type { StoredEntry } from '../handed-out.ts';

type Body = [Update['topics'], string, boolean, string | null, string | null];

/**
 * The data that are stored in addition to the id. Text, because the JSON types of PostgreSQL refuse a NUL that is
 * escaped.
 */
export function encodeBody({ topics, data, private: secret, type, retry }: Update): string {
  const body: Body = [[...topics], data, secret, type, retry];
  return JSON.stringify(body);
}

/** The columns that {@link decodeEntry} reads, of the table `e`. */
export const ENTRY_COLUMNS = 'e.position, e.at, e.presence, e.key, e.previous, e.id, e.body';

/** @throws HubgateError `history-damaged` */
export function decodeEntry(row: Row): StoredEntry {
  const { position, at, presence, key, previous, id, body } = row;
  try {
    const [topics, data, secret, type, retry] = JSON.parse(String(body)) as Body;
    if (!Array.isArray(topics) || typeof data !== 'string') throw new Error('no topics or no data');
    const plain = { id: String(id), topics, data, private: secret, type, retry };
    const update: Update = presence === true ? { ...plain, presence: true } : plain;
    const place = { position: Number(position), at: Number(at) };
    return { ...place, key: String(key), previous: String(previous), update };
  } catch (cause) {
    const message = `the entry at position ${Number(position)} is not one of a hub`;
    throw new HubgateError('history-damaged', message, { cause });
  }
}
