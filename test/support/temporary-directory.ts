import { rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Owner } from './http.ts';

/** A new directory that goes with its owner. */
export async function temporaryDirectory(owner: Owner): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'hubgate-'));
  removeWith(owner, path);
  return path;
}

/**
 * Removes a directory with its owner, or at the end of the process where a program still writes to
 * it: a hook that throws would keep those behind it from ending that program.
 */
export function removeWith(owner: Owner, path: string): void {
  owner.after(() =>
    rm(path, { recursive: true, force: true }).catch(() => {
      process.once('exit', () => rmSync(path, { recursive: true, force: true, maxRetries: 3 }));
    }),
  );
}
