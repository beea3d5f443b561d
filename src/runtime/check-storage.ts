import { accessSync, constants, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { GlobalOptions } from '../config/config.ts';
import type { Report } from '../config/problem.ts';
import { codeOf } from '../kernel/error.ts';
import { defaultStorage } from './default-storage.ts';

/** Whether certificates, keys and history can be kept where they are to be. Nothing is made. */
export function checkStorage(options: GlobalOptions, report: Report): void {
  const path = resolve(options.storage ?? defaultStorage());
  const fault = faultOf(path);
  if (fault === null) return;
  const message = `certificates, keys and history cannot be kept in ${path}: ${fault.reason}`;
  const code = 'storage-unusable';
  const hint = 'name a directory of its own with the global option storage <dir>';
  report(options, { severity: fault.severity, code, message, hint }, { field: 'storage' });
}

interface Fault {
  readonly severity: 'error' | 'warning';
  readonly reason: string;
}

/** Missing directories are made, below the first that is there. */
function faultOf(path: string): Fault | null {
  try {
    if (!statSync(path).isDirectory())
      return { severity: 'error', reason: `${path} is no directory` };
    accessSync(path, constants.W_OK | constants.X_OK);
    return null;
  } catch (thrown) {
    switch (codeOf(thrown)) {
      case 'ENOENT':
      case 'ENOTDIR':
        return path === dirname(path) ? null : faultOf(dirname(path));
      case 'EROFS':
        return { severity: 'error', reason: `${path} is on a read-only file system` };
      default:
        // Whoever runs the gateway may be somebody else.
        return { severity: 'warning', reason: `whoever asks now may not write to ${path}` };
    }
  }
}
