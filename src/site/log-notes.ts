import type { Exchange } from '../http/exchange.ts';
import type { LogFields } from '../kernel/log.ts';

/** Stands for what is not to be told. */
export const HIDDEN = 'REDACTED';
/** Longest target or value that a line repeats, in characters. */
export const MAX_SHOWN = 1024;

const SKIPPED = 'log_skip';
const NAMES = 'log_name';
/** Behind it stands the name of a field; no placeholder has a space in it. */
const APPENDED = 'log_append ';

/** Keeps a request out of the access logs. */
export function skipLog({ variables }: Exchange): void {
  variables.set(SKIPPED, 'true');
}

export function isLogSkipped({ variables }: Exchange): boolean {
  return variables.has(SKIPPED);
}

/** From now on it is for the logs of these names, and for no other. */
export function nameLogs({ variables }: Exchange, names: readonly string[]): void {
  variables.set(NAMES, names.join(' '));
}

/** null where nobody has named any. */
export function namesOfLogs({ variables }: Exchange): readonly string[] | null {
  return variables.get(NAMES)?.split(' ') ?? null;
}

/** Puts a field into the lines of the request. */
export function appendToLog({ variables }: Exchange, field: string, value: string): void {
  variables.set(APPENDED + field, value);
}

export function appendedFields({ variables }: Exchange): LogFields {
  const fields: Record<string, string> = {};
  for (const [name, value] of variables) {
    if (name.startsWith(APPENDED)) fields[name.slice(APPENDED.length)] = value;
  }
  return fields;
}
