import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { BrowserScript } from '../hub-http/browser-script.ts';

/** The script of live pages as it was built; null where it was not. */
export function readLiveScript(): BrowserScript | null {
  return readScript(import.meta.resolve('#live-script'));
}

/** `hubgate/client` as one file; null where it was not built. */
export function readClientScript(): BrowserScript | null {
  return readScript(import.meta.resolve('#client-script'));
}

/** The script of the debugger's page; null where it was not built. */
export function readDebuggerScript(): BrowserScript | null {
  return readScript(import.meta.resolve('#debugger-script'));
}

function readScript(url: string): BrowserScript | null {
  const file = fileURLToPath(url);
  if (!existsSync(file)) return null;
  const bytes = readFileSync(file);
  return { bytes, version: createHash('sha256').update(bytes).digest('hex').slice(0, 8) };
}
