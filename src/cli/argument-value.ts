import { readFileSync } from 'node:fs';
import { HubgateError, messageOf } from '../kernel/error.ts';

/**
 * The value of an option that may be literal, `@FILE` or `@-` for standard input. From a file one
 * trailing newline is dropped, with the carriage return before it.
 *
 * @throws HubgateError `unreadable-file`
 */
export function argumentValue(value: string): string {
  if (!value.startsWith('@')) return value;
  const file = value.slice(1);
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
      .replace(/\n$/, '')
      .replace(/\r$/, '');
  } catch (cause) {
    throw new HubgateError('unreadable-file', `Cannot read ${file}: ${messageOf(cause)}`, {
      cause,
    });
  }
}
