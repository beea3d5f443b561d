import { hash, randomBytes } from 'node:crypto';
import {
  constants,
  copyFile,
  link,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { whyUnusable } from '../config/problem.ts';
import { codeOf, HubgateError, messageOf, ignore } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { homedir } from 'node:os';

/** Error codes of file systems that do not support hard links. */
const NO_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'];

/** Error codes of file systems, and of Windows, that cannot synchronise directories. */
const NO_DIRECTORY_SYNC = ['EPERM', 'EACCES', 'EISDIR', 'EINVAL', 'ENOTSUP'];

/** Reads a text file; null if it does not exist. */
export async function readIfPresent(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    throw failure(error);
  }
}

/** The error for a file of the storage that this user may not use says whose it is. */
function failure(cause: unknown): unknown {
  if (codeOf(cause) !== 'EACCES') return cause;
  const message = `A file of the storage cannot be used: ${whyUnusable(cause)}`;
  return new HubgateError('storage-forbidden', message, { cause });
}

/** Error codes of a path that leads to something else than a file, or to the file of another user. */
const NOT_USABLE = ['EISDIR', 'ELOOP', 'ENOTDIR', 'EPERM', 'storage-forbidden'];

/** Like {@link readIfPresent}, for a file that can be replaced: null also for a path that cannot be read as a file. */
export async function readIfUsable(path: string, log: Logger): Promise<string | null> {
  try {
    return await readIfPresent(path);
  } catch (error) {
    if (!NOT_USABLE.includes(codeOf(error) ?? '')) throw error;
    log.warn('A file of the storage cannot be used', { file: path, error: messageOf(error) });
    return null;
  }
}

/** The names in a directory, sorted; empty if the directory does not exist. */
export async function namesIn(directory: string): Promise<string[]> {
  try {
    return (await readdir(directory)).toSorted();
  } catch (error) {
    if (codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR') return [];
    throw error;
  }
}

/**
 * Data is on the disk before the file gets its name. Otherwise the file might be empty after a power failure.
 */
const DURABLY = { flag: 'wx', mode: 0o600, flush: true } as const;

/** Writes a private file (0600, its directories 0700). Readers see all of it or nothing. */
export function writePrivate(path: string, text: string): Promise<void> {
  return written(path, text, async (temporary) => {
    await rename(temporary, path);
    await syncDirectory(dirname(path));
  });
}

/** Writes a text into a temporary file beside a path, for as long as it takes to put it there. */
async function written<T>(
  path: string,
  text: string,
  put: (temporary: string) => Promise<T>,
): Promise<T> {
  const temporary = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeFile(temporary, text, DURABLY);
    return await put(temporary);
  } catch (error) {
    throw failure(error);
  } finally {
    await rm(temporary, { force: true }).catch(ignore);
  }
}

/** Makes the name durable too, if the file system can. */
async function syncDirectory(path: string): Promise<void> {
  try {
    const directory = await open(path, 'r');
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  } catch (error) {
    if (!NO_DIRECTORY_SYNC.includes(codeOf(error) ?? '')) throw error;
  }
}

/**
 * Like {@link writePrivate}, for a file that must not exist yet. Returns false, without any change, if it exists.
 */
export function createPrivate(path: string, text: string): Promise<boolean> {
  return written(path, text, async (temporary) => {
    try {
      await linkOrCopy(temporary, path);
      return true;
    } catch (error) {
      if (codeOf(error) === 'EEXIST') return false;
      throw error;
    }
  });
}

/** A link appears together with its whole content. Some network file systems support only copies. */
async function linkOrCopy(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    if (!NO_LINKS.includes(codeOf(error) ?? '')) throw error;
    await copyFile(from, to, constants.COPYFILE_EXCL);
  }
}

/** `$XDG_DATA_HOME/hubgate`, else `~/.local/share/hubgate`. */
export function defaultStorage(): string {
  const data = process.env['XDG_DATA_HOME'] || join(homedir(), '.local', 'share');
  return join(data, 'hubgate');
}

/**
 * Converts a name to a file name that is safe everywhere. It is a hash if names are many, long or unusual.
 */
export function fileName(names: readonly string[]): string {
  const [name = ''] = names;
  const plain = name.replace(/^\*(?=\.)/, 'wildcard').replace(/:(?=\d+$)/, '-');
  // Hosts that are called so would share the files of wildcards.
  const isUsual = /^[a-z0-9_][a-z0-9._-]{0,99}$/.test(plain) && !name.startsWith('wildcard.');
  if (names.length === 1 && isUsual) return plain;
  return hash('sha256', JSON.stringify(names), 'hex').slice(0, 32);
}
