import { writeFileSync } from 'node:fs';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';

/**
 * Writes a file that is not there yet, for its owner alone unless `mode` says otherwise.
 *
 * @throws {HubgateError} `file-exists`, `unwritable-file`
 */
export function writeNew(file: string, text: string, mode = 0o600): void {
  try {
    writeFileSync(file, text, { flag: 'wx', mode });
  } catch (cause) {
    if (codeOf(cause) === 'EEXIST') {
      const message = `${file} is there already; name another file, or move it away`;
      throw new HubgateError('file-exists', message, { cause });
    }
    const message = `Cannot write ${file}: ${messageOf(cause)}`;
    throw new HubgateError('unwritable-file', message, { cause });
  }
}
