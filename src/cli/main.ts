#!/usr/bin/env node
import { mkdirSync } from 'node:fs';
import module from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';

enableCompileCache();
// Only now: what is loaded before is compiled again at each start.
const { runProgram } = await import('./program.ts');
await runProgram(process.argv.slice(2));

/**
 * Lets Node keep the compiled form of the program's files, where the Node has such a cache (22.1).
 * It lies in `$XDG_CACHE_HOME/hubgate`, else `~/.cache/hubgate`, which only this user may write:
 * what is in it is run, and Node's own place for it, below the directory of temporary files, is
 * everybody's. Without a writable home nothing is kept.
 */
function enableCompileCache(): void {
  // The types are those of Node 20, which lacks it.
  const { enableCompileCache: enable } = module as { enableCompileCache?: (at: string) => unknown };
  if (enable === undefined) return;
  try {
    const directory = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'hubgate');
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    enable(join(directory, 'compiled'));
  } catch {
    // Only slower.
  }
}
