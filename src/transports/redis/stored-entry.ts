import type { Update } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { StoredEntry } from '../handed-out.ts';

type Rest = [Update['topics'], string, boolean, string | null, string | null];

/** An update as arguments of the append script. */
export function appendArguments(update: Update): readonly [id: string, rest: string, kind: string] {
  const kind = update.presence === true ? '1' : update.once === true ? 'o' : '';
  return [update.id, encodeRest(update), kind];
}

/** The data that are stored in addition to the id. */
function encodeRest({ topics, data, private: secret, type, retry }: Update): string {
  const rest: Rest = [[...topics], data, secret, type, retry];
  return JSON.stringify(rest);
}

/** @throws HubgateError `history-damaged` */
export function decodeEntry(reply: unknown): StoredEntry {
  try {
    // The format of the append script: k, p, a, i, u with their values, and e for a presence event.
    const [place, fields] = reply as [string, string[]];
    const [, key = '', , previous = '', , at = '', , id = '', , json = '', mark] = fields;
    const [topics, data, secret, type, retry] = JSON.parse(json) as Rest;
    const plain = { id, topics, data, private: secret, type, retry };
    const update: Update = mark === 'e' ? { ...plain, presence: true } : plain;
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

export function textOf(reply: unknown): string | null {
  return typeof reply === 'string' ? reply : null;
}
