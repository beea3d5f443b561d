import { type Stats, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { AccessLogConfig, LogOptions } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { codeOf } from '../kernel/error.ts';

/** Whether a log can be written where it is to go. Looks only: nothing is made. */
export function checkLogFile(log: LogOptions | AccessLogConfig, report: Report): void {
  const { output } = log;
  if (output === null || output === 'stderr' || output === 'stdout') return;
  const reason = whyUnwritable(output);
  if (reason === null) return;
  const message = `cannot log to ${output}: ${reason}`;
  report(log, { severity: 'error', code: 'unusable-log-file', message }, { field: 'output' });
}

function whyUnwritable(path: string): string | null {
  const found = look(path);
  if (found === 'unknown') return null;
  if (found !== null) {
    if (found.isFile() || found.isFIFO() || found.isCharacterDevice()) return null;
    return found.isDirectory() ? 'it is a directory' : 'it is no file';
  }
  return whyNoDirectory(dirname(path));
}

/** Missing directories are made when the log is opened, below the first that is there. */
function whyNoDirectory(path: string): string | null {
  const found = look(path);
  if (found === null) return path === dirname(path) ? null : whyNoDirectory(dirname(path));
  return found === 'unknown' || found.isDirectory() ? null : `${path} is no directory`;
}

/** null for what is not there; who may not look here may still run the gateway as somebody else. */
function look(path: string): Stats | 'unknown' | null {
  try {
    return statSync(path);
  } catch (thrown) {
    const code = codeOf(thrown);
    return code === 'ENOENT' || code === 'ENOTDIR' ? null : 'unknown';
  }
}
