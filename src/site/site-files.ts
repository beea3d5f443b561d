import { realpathSync, type Stats } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { join, resolve, sep } from 'node:path';
import { HttpError } from '../http/errors.ts';
import { codeOf, messageOf } from '../kernel/error.ts';

/** A file or directory below a root, whose real path no symlink leads out of it. */
export interface SiteFile {
  readonly path: string;
  readonly stats: Stats;
}

/** Characters; no system has longer paths. */
const MAX_PATH = 4096;

/** The names of a decoded path; null for one that no file of a site can have: dotfiles and `..`. */
export function siteNames(path: string): string[] | null {
  if (path.includes('\0') || path.length > MAX_PATH) return null;
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  const isAllowed = (name: string): boolean => !name.startsWith('.') || name === '.well-known';
  return names.every(isAllowed) ? names : null;
}

/** @throws HttpError 404 where it cannot be read */
export async function realRoot(directory: string): Promise<string> {
  try {
    return await realpath(resolve(directory));
  } catch (cause) {
    const message = `the root ${directory} cannot be read: ${messageOf(cause)}`;
    throw new HttpError(404, message, { cause });
  }
}

/** Whether no site may show a file, which is named by its real path: the configuration. */
export type HidesFile = (path: string) => boolean;

/** Of files that are given by their paths, whichever links lead to them. */
export function hidingFiles(paths: readonly string[]): HidesFile {
  const hidden = new Set(paths.flatMap((path) => [resolve(path), realPathOf(path)]));
  return (path) => hidden.has(path);
}

function realPathOf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // Not there: standard input, say.
    return resolve(path);
  }
}

/**
 * @throws HttpError 404 for what is not there, hidden or outside of the root, 403 for what may not be
 * read
 */
export async function siteFile(
  root: string,
  names: readonly string[],
  hidesFile: HidesFile,
): Promise<SiteFile> {
  try {
    const path = await realpath(join(root, ...names));
    const inside = path === root || path.startsWith(root.endsWith(sep) ? root : root + sep);
    if (!inside || hidesFile(path)) throw noSuchFile();
    return { path, stats: await stat(path) };
  } catch (cause) {
    throw cause instanceof HttpError ? cause : unreadable(cause);
  }
}

/** What the client is told of a file that cannot be opened. */
export function unreadable(cause: unknown): HttpError {
  const code = codeOf(cause);
  if (code === 'EACCES' || code === 'EPERM') {
    return new HttpError(403, 'the file may not be read', { cause });
  }
  return new HttpError(404, messageOf(cause), { cause });
}

export function noSuchFile(): HttpError {
  return new HttpError(404, 'no such file');
}
