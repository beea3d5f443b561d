import type { Update } from '../hub/update.ts';

/** An entry of a history that may lose its end: each entry has a random key, and contains that of its predecessor. */
export interface StoredEntry {
  readonly position: number;
  /** Random key. It distinguishes the entry from another one that gets the same position later. */
  readonly key: string;
  /** The key of the previous entry; empty for the first. */
  readonly previous: string;
  /** Time of acceptance, in milliseconds since the Unix epoch, by the server's clock. */
  readonly at: number;
  readonly update: Update;
}

/** What identifies a stored entry, without its body. */
export interface EntryMark {
  readonly position: number;
  readonly key: string;
  readonly id: string;
  /** Whether it is a presence event. */
  readonly isEvent: boolean;
}

/** From the first of two positions to the second. */
export type Range = readonly [first: number, last: number];

/** The last entry of a history; position 0 and no key before the first. */
export interface HistoryEnd {
  readonly position: number;
  readonly key: string | null;
  readonly id: string | null;
  /** Id of the last entry that is not a presence event. */
  readonly updateId: string | null;
}

type UpdateBody = [Update['topics'], string, boolean, string | null, string | null];

/**
 * What every store keeps of an update in addition to its id and its kind. Text, because the JSON types of PostgreSQL
 * refuse a NUL that is escaped.
 */
export function encodeBody({ topics, data, private: secret, type, retry }: Update): string {
  const body: UpdateBody = [[...topics], data, secret, type, retry];
  return JSON.stringify(body);
}

/** @throws SyntaxError if the body is not one of {@link encodeBody} */
export function decodeUpdate(id: string, body: string, isPresence: boolean): Update {
  const [topics, data, secret, type, retry] = JSON.parse(body) as UpdateBody;
  const update = { id, topics, data, private: secret, type, retry };
  return isPresence ? { ...update, presence: true } : update;
}
