#!/usr/bin/env node
import { mkdirSync } from 'node:fs';
import module from 'node:module';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { loadingBegins } from '../kernel/v8-memory.ts';

/** Commands that end in `runGateway`, which ends this phase. Others may calculate for long. */
const GATEWAYS = ['run', 'reverse-proxy'];

if (GATEWAYS.includes(process.argv[2] ?? '')) {
  // Until the gateway handles them, Node would end the process, or open a debugger.
  for (const signal of ['SIGHUP', 'SIGUSR1', 'SIGUSR2']) process.on(signal, () => {});
  loadingBegins();
}
enableCompileCache();
// Imported only now: modules that are loaded earlier are compiled again at each start.
const { runProgram } = await import('./program.ts');
await runProgram(process.argv.slice(2));

/**
 * Lets Node cache the compiled form of the program's files, if this version of Node can (22.1). The cache is
 * in `$CACHE_DIRECTORY` (a service of systemd), else `$XDG_CACHE_HOME/hubgate`, else `~/.cache/hubgate`, where
 * only this user can write. This matters because its content is executed; Node's default, below the directory
 * of temporary files, is shared by all users. Without a writable directory there is no cache.
 */
function enableCompileCache(): void {
  // The types are those of Node 20, which does not have it.
  const { enableCompileCache: enable } = module as { enableCompileCache?: (at: string) => unknown };
  if (enable === undefined) return;
  try {
    const [service] = (process.env['CACHE_DIRECTORY'] ?? '').split(':');
    const home = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
    const directory = service || join(home, 'hubgate');
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    enable(join(directory, 'compiled'));
  } catch {
    // Only slower.
  }
}
