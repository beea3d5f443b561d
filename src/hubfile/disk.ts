import { readFileSync, readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { HubfileIo } from './expand.ts';
import type { Environment } from './source.ts';

/** The files of this machine, as `load` reads them. */
export function diskIo(env: Environment): HubfileIo {
  return { read: (path) => readFileSync(path), glob: findFiles, env };
}

/** Absolute paths, sorted, that match an absolute pattern with `*` and `?`. */
export function findFiles(pattern: string): string[] {
  const directory = dirname(pattern);
  if (directory === pattern) return [pattern];
  const parents = /[*?]/.test(directory) ? findFiles(directory) : [directory];
  const name = basename(pattern);
  return parents
    .flatMap((parent) =>
      namesIn(parent)
        .filter(matches(name))
        .map((each) => join(parent, each)),
    )
    .sort();
}

/** What cannot be listed has no files that match. */
function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    // A missing or forbidden directory is the same as an empty one: the import warns.
    return [];
  }
}

/** A pattern that begins with `*` leaves hidden files out. */
function matches(pattern: string): (name: string) => boolean {
  const escaped = pattern.replaceAll(/[.+^${}()|[\]\\]/g, '\\$&');
  const regexp = new RegExp(`^${escaped.replaceAll('*', '.*').replaceAll('?', '.')}$`, 'su');
  return (name) => regexp.test(name) && !(pattern.startsWith('*') && name.startsWith('.'));
}
