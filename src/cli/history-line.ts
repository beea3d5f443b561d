import type { Update } from '../hub/update.ts';
import { HubgateError } from '../kernel/error.ts';
import type { HistoryEntry } from '../runtime/history-names.ts';
import { printable } from './terminal.ts';

/** An update as a line of JSON; `at` is the time at which it was accepted. */
export function toHistoryLine({ at, update }: HistoryEntry): string {
  return printable(JSON.stringify({ ...update, at: new Date(at).toISOString() }));
}

/**
 * @param now time of acceptance for a line that does not contain it
 * @throws HubgateError `invalid-argument` with the number of the line
 */
export function parseHistoryLine(text: string, line: number, now: number): HistoryEntry {
  const refuse = (what: string): never => {
    throw new HubgateError('invalid-argument', `Line ${line} is not an update: ${what}`);
  };
  const fields = fieldsOf(text) ?? refuse('it is not a JSON object');
  const { id, topics, data = '', private: secret = false, type = null, retry = null } = fields;
  const { presence } = fields;
  if (typeof id !== 'string' || id === '') return refuse('"id" is missing');
  if (!isTexts(topics) || topics.length === 0) return refuse('"topics" is not a list of texts');
  if (typeof data !== 'string') return refuse('"data" is not text');
  if (typeof secret !== 'boolean') return refuse('"private" is neither true nor false');
  if (type !== null && typeof type !== 'string') return refuse('"type" is not text');
  if (retry !== null && typeof retry !== 'string') return refuse('"retry" is not text');
  if (presence !== undefined && presence !== true) return refuse('"presence" is not true');
  const at = typeof fields['at'] === 'string' ? Date.parse(fields['at']) : now;
  if (Number.isNaN(at)) return refuse('"at" is not a time');
  const update: Update = { id, topics, data, private: secret, type, retry };
  return { at, update: presence === undefined ? update : { ...update, presence } };
}

/**
 * Reads an update in the format of the reference hub's store.
 *
 * @throws HubgateError `invalid-argument` with the number of the update
 */
export function parseReferenceUpdate(text: string, number: number, now: number): HistoryEntry {
  const fields = fieldsOf(text) ?? {};
  const { ID: id, Topics: topics, Data: data, Private: secret, Type: type, Retry: retry } = fields;
  const line = {
    id,
    topics,
    data,
    private: secret,
    type: type === '' ? null : type,
    retry: typeof retry === 'number' && retry > 0 ? String(retry) : null,
  };
  return parseHistoryLine(JSON.stringify(line), number, now);
}

function fieldsOf(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
    return { ...value };
  } catch {
    return null;
  }
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}
