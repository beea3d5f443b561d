import { type Dirent, existsSync, readdirSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import zlib from 'node:zlib';
import type { HubfileIo } from './expand.ts';
import { HubgateError } from '../kernel/error.ts';
import { readRegularFile } from '../kernel/files.ts';
import { orNull } from '../kernel/parse.ts';
import type { Environment } from './source.ts';

/** File access of this machine for `load`. */
export function diskIo(env: Environment): HubfileIo {
  return { read: readRegularFile, glob: filesFor, env };
}

/** The same for the machine that serves the configuration. */
export function servingIo(env: Environment): HubfileIo {
  const machine = { exists: existsSync, hasZstd: 'createZstdCompress' in zlib };
  return { ...diskIo(env), machine };
}

/** The files for an import pattern. With `**`, it also matches directories, which are left out. */
function filesFor(pattern: string): string[] {
  const found = findFiles(pattern);
  if (!pattern.includes('**')) return found;
  return found.filter((path) => statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true);
}

/** Most directories that `**` can stand for. A larger tree does not consist of configurations. */
const MAX_DIRECTORIES = 10_000;

/**
 * Absolute paths, sorted, that match an absolute pattern with `*` and `?`. `**` stands for a directory and
 * everything below it, except hidden directories and links.
 *
 * @throws Error `too-many-directories`
 */
export function findFiles(pattern: string): string[] {
  const directory = dirname(pattern);
  if (directory === pattern) return [pattern];
  const name = basename(pattern);
  if (name === '**') return findFiles(directory).flatMap(directoriesIn).sort();
  const parents = /[*?]/.test(directory) ? findFiles(directory) : [directory];
  return parents
    .flatMap((parent) =>
      // A directory that cannot be listed counts as empty, also below; the import warns about it.
      (namesIn(parent) ?? []).filter(matches(name)).map((each) => join(parent, each)),
    )
    .sort();
}

/** A directory and those below it. */
function directoriesIn(top: string): string[] {
  const found = [top];
  // Directories that are found on the way are walked as well.
  for (const directory of found) {
    for (const entry of entriesOf(directory)) {
      if (entry.isDirectory() && !entry.name.startsWith('.')) {
        found.push(join(directory, entry.name));
      }
    }
    if (found.length > MAX_DIRECTORIES) {
      const message = `${top} has more than ${MAX_DIRECTORIES} directories below it`;
      throw new HubgateError('too-many-directories', message);
    }
  }
  return found;
}

function entriesOf(directory: string): readonly Dirent[] {
  return orNull(() => readdirSync(directory, { withFileTypes: true })) ?? [];
}

/** The names in a directory; null if it is missing or cannot be listed. */
export function namesIn(directory: string): string[] | null {
  return orNull(() => readdirSync(directory));
}

/** A pattern that begins with `*` does not match hidden files. */
function matches(pattern: string): (name: string) => boolean {
  const escaped = pattern.replaceAll(/[.+^${}()|[\]\\]/g, '\\$&');
  const regexp = new RegExp(`^${escaped.replaceAll('*', '.*').replaceAll('?', '.')}$`, 'su');
  return (name) => regexp.test(name) && !(pattern.startsWith('*') && name.startsWith('.'));
}
