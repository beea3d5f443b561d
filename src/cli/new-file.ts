import { closeSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import { readInput } from './config-source.ts';

/**
 * Writes a file that must not exist yet, readable only by its owner unless `mode` differs.
 *
 * @throws {HubgateError} `file-exists`, `unwritable-file`
 */
export function writeNew(file: string, text: string, mode = 0o600): void {
  try {
    const opened = openSync(file, 'wx', mode);
    try {
      writeFileSync(opened, text);
    } catch (error) {
      // The disk is full: the next attempt must not find a part of it.
      rmSync(file, { force: true });
      throw error;
    } finally {
      closeSync(opened);
    }
  } catch (cause) {
    throw unwritable(file, cause);
  }
}

/** The error for a new file that could not be written. */
export function unwritable(file: string, cause: unknown): HubgateError {
  if (codeOf(cause) === 'EEXIST') {
    const message = `${file} exists already; choose another file, or move it away`;
    return new HubgateError('file-exists', message, { cause });
  }
  const message = `Cannot write ${file}: ${messageOf(cause)}`;
  return new HubgateError('unwritable-file', message, { cause });
}

/**
 * The value of an option that can be literal, `@FILE`, or `@-` for standard input. One trailing newline of a
 * file is removed, with a carriage return before it.
 *
 * @throws HubgateError `unreadable-file`
 */
export function argumentValue(value: string): string {
  if (!value.startsWith('@')) return value;
  return readInput(value.slice(1)).toString('utf8').replace(/\n$/, '').replace(/\r$/, '');
}
