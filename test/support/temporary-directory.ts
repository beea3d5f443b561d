import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Owner } from './http.ts';

/** A new directory that goes with its owner. */
export async function temporaryDirectory(owner: Owner): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'hubgate-'));
  owner.after(() => rm(path, { recursive: true, force: true }));
  return path;
}
