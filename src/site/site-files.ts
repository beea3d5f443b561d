import { realpathSync, type Stats } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve, sep } from 'node:path';
import { HttpError } from '../http/errors.ts';
import { codeOf, messageOf } from '../kernel/error.ts';
import { orNull } from '../kernel/parse.ts';
import { fallbackStatus, type TryPolicy } from '../config/well-formed.ts';
import type { Exchange } from '../http/exchange.ts';
import { rootOf, splitAfter } from '../http/request-path.ts';
import { decodedValue, expandPlaceholders } from './placeholders.ts';

/** A file or directory below a root; no symlink leads its real path out of the root. */
export interface SiteFile {
  readonly path: string;
  readonly stats: Stats;
}

/** In characters; no system has longer paths. */
const MAX_PATH = 4096;

/** The names in a decoded path; null if no file of a site can have it: dotfiles and `..`. */
export function siteNames(path: string): string[] | null {
  if (path.includes('\0') || path.length > MAX_PATH) return null;
  const names = path.split('/').filter((name) => name !== '' && name !== '.');
  const isAllowed = (name: string): boolean => !name.startsWith('.') || name === '.well-known';
  return names.every(isAllowed) ? names : null;
}

/** @throws HttpError 404 if it cannot be read */
export async function realRoot(directory: string): Promise<string> {
  try {
    return await realpath(resolve(directory));
  } catch (cause) {
    const message = `the root ${directory} cannot be read: ${messageOf(cause)}`;
    throw new HttpError(404, message, { cause });
  }
}

/**
 * Whether a file must not be served by any site, by its path: the gateway's own files. A file has several paths, of
 * which {@link siteFile} asks about the real one and the requested one.
 */
export type HidesFile = (path: string) => boolean;

/** Directories in the storage. A site may serve other ones beside them. */
const STORED = ['acme', 'certificates', 'history', 'pki', 'tls'];

/**
 * For files that are given by their paths, whatever links lead to them, and for what the gateway keeps in its storage,
 * except certificates.
 *
 * The links themselves are hidden too, in the directories where they really are: certbot and Kubernetes replace a link, and
 * its new target is known only after the next load.
 */
export function hidingFiles(paths: readonly string[], storage: string): HidesFile {
  const both = (path: string): string[] => [resolve(path), realPathOf(path)];
  const linkOf = (path: string): string =>
    join(realPathOf(dirname(resolve(path))), basename(resolve(path)));
  const hidden = new Set(paths.flatMap((path) => [...both(path), linkOf(path)]));
  const directories = both(storage).flatMap((base) => STORED.map((name) => join(base, name) + sep));
  return (path) =>
    hidden.has(path) ||
    (!path.endsWith('.crt') && directories.some((directory) => path.startsWith(directory)));
}

function realPathOf(path: string): string {
  // It need not exist, for example standard input.
  return orNull(() => realpathSync(path)) ?? resolve(path);
}

/**
 * @throws HttpError 404 for a file that does not exist, is hidden or is outside of the root, 403 for one
 * without read permission
 */
export async function siteFile(
  root: string,
  names: readonly string[],
  hidesFile: HidesFile,
): Promise<SiteFile> {
  try {
    const requested = join(root, ...names);
    const path = await realpath(requested);
    const inside = path === root || path.startsWith(root.endsWith(sep) ? root : root + sep);
    const isHidden = hidesFile(path) || (requested !== path && hidesFile(requested));
    if (!inside || isHidden) throw noSuchFile();
    return { path, stats: await stat(path) };
  } catch (cause) {
    throw cause instanceof HttpError ? cause : unreadable(cause);
  }
}

/** Causes that say nothing about the file: no descriptors, no memory, a failing disk. */
const PASSING: ReadonlySet<string | undefined> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EIO']);

/** The error for the client if a file cannot be opened. */
export function unreadable(cause: unknown): HttpError {
  const code = codeOf(cause);
  if (PASSING.has(code)) return new HttpError(503, messageOf(cause), { cause });
  if (code === 'EACCES' || code === 'EPERM') {
    return new HttpError(403, 'the file may not be read', { cause });
  }
  return new HttpError(404, messageOf(cause), { cause });
}

export function noSuchFile(): HttpError {
  return new HttpError(404, 'no such file');
}

export interface FileSearch {
  /** null: the `root` of the site. Placeholders are filled in. */
  readonly root: string | null;
  /**
   * Paths below the root, with placeholders. A path with `/` at its end is a directory. The last one may be
   * `=404`.
   */
  readonly files: readonly string[];
  readonly policy: TryPolicy;
  /** Ends of names after which the rest of the path does not belong to the file: `.php`. */
  readonly splitPath: readonly string[];
}

export interface TriedFile {
  /** Index of the selected file. */
  readonly index: number;
  /** Relative to the root: `/docs/`, decoded; a directory ends with `/`. */
  readonly relative: string;
  readonly absolute: string;
  readonly type: 'file' | 'directory';
  /** The part after the split. */
  readonly remainder: string;
}

interface Candidate extends TriedFile {
  readonly stats: SiteFile['stats'];
}

/**
 * Looks up which of the given files exists, and stores it in `{file_match.…}`. A file that `file_server`
 * would not serve does not exist here either.
 *
 * @throws HttpError with the status of `=404` if none before it was found
 */
export async function tryFiles(
  exchange: Exchange,
  search: FileSearch,
  hidesFile: HidesFile,
): Promise<TriedFile | null> {
  const root = await searchedRoot(search, exchange);
  const found: Candidate[] = [];
  for (const [index, file] of search.files.entries()) {
    const status = fallbackStatus(file);
    if (status !== null) throw new HttpError(status, 'none of the files exists');
    if (root === null) continue;
    const wanted = expandPlaceholders(file, exchange, undefined, decodedValue);
    const isDirectory = file.endsWith('/');
    const one = await candidate(root.real, wanted, isDirectory, search.splitPath, hidesFile);
    if (one === null) continue;
    found.push({ ...one, index, absolute: join(resolve(root.directory), one.relative) });
    if (search.policy === 'first_exist') break;
  }
  const best = found.reduce<Candidate | null>(
    (known, one) => (known === null || isBetter(one, known, search.policy) ? one : known),
    null,
  );
  if (best !== null) leave(exchange, best);
  return best;
}

/** null if there is no such directory, so that no file exists in it. */
async function searchedRoot(
  search: FileSearch,
  exchange: Exchange,
): Promise<{ readonly directory: string; readonly real: string } | null> {
  try {
    const directory = rootOf(search.root, exchange, expandPlaceholders);
    return { directory, real: await realRoot(directory) };
  } catch {
    return null;
  }
}

async function candidate(
  root: string,
  wanted: string,
  wantsDirectory: boolean,
  splitPath: readonly string[],
  hidesFile: HidesFile,
): Promise<Omit<Candidate, 'index' | 'absolute'> | null> {
  const [path, remainder] = splitAfter(wanted, splitPath);
  const names = siteNames(path);
  if (names === null) return null;
  const found = await siteFile(root, names, hidesFile).catch(() => null);
  if (found === null) return null;
  const isDirectory = found.stats.isDirectory();
  if (isDirectory !== wantsDirectory || !(isDirectory || found.stats.isFile())) return null;
  const slash = isDirectory && names.length > 0 ? '/' : '';
  return {
    relative: `/${names.join('/')}${slash}`,
    type: isDirectory ? 'directory' : 'file',
    remainder,
    stats: found.stats,
  };
}

function isBetter(one: Candidate, known: Candidate, policy: TryPolicy): boolean {
  switch (policy) {
    case 'first_exist':
      return false;
    case 'smallest_size':
      return one.stats.size < known.stats.size;
    case 'largest_size':
      return one.stats.size > known.stats.size;
    case 'most_recently_modified':
      return one.stats.mtimeMs > known.stats.mtimeMs;
  }
}

function leave({ variables }: Exchange, { relative, absolute, type, remainder }: TriedFile): void {
  for (const [name, value] of Object.entries({ relative, absolute, type, remainder })) {
    variables.set(`file_match.${name}`, value);
  }
}
