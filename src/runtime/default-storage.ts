import { homedir } from 'node:os';
import { join } from 'node:path';

/** `$XDG_DATA_HOME/hubgate`, else `~/.local/share/hubgate`. */
export function defaultStorage(): string {
  const data = process.env['XDG_DATA_HOME'] || join(homedir(), '.local', 'share');
  return join(data, 'hubgate');
}
