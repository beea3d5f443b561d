import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { LiveScript } from '../hub-http/live-script.ts';

/** The script of live pages as it was built; null where it was not. */
export function readLiveScript(): LiveScript | null {
  const file = fileURLToPath(import.meta.resolve('#live-script'));
  if (!existsSync(file)) return null;
  const bytes = readFileSync(file);
  return { bytes, version: createHash('sha256').update(bytes).digest('hex').slice(0, 8) };
}
