import { createHash, randomBytes } from 'node:crypto';
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
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { codeOf } from '../kernel/error.ts';
import { homedir } from 'node:os';

/** How a file system says that it knows no hard links. */
const NO_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'];

/** How a file system, or Windows, says that it synchronises no directories. */
const NO_DIRECTORY_SYNC = ['EPERM', 'EACCES', 'EISDIR', 'EINVAL', 'ENOTSUP'];

/** Reads a text file; null when there is none. */
export async function readIfPresent(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    throw error;
  }
}

/** The names in a directory, sorted; none where there is no such directory. */
export async function namesIn(directory: string): Promise<string[]> {
  try {
    return (await readdir(directory)).toSorted();
  } catch (error) {
    if (codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR') return [];
    throw error;
  }
}

/** Writes a private file (0600, its directories 0700) so that readers see all of it or none. */
export async function writePrivate(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await writeDurably(temporary, text);
    await rename(temporary, path);
    await syncDirectory(dirname(path));
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** What is not on the disk before it gets its name may be an empty file after a power failure. */
async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Keeps the name itself, where the file system can. */
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

/** The same for a file that must not be there yet; false, and nothing done, when it is. */
export async function createPrivate(path: string, text: string): Promise<boolean> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await writeDurably(temporary, text);
    await linkOrCopy(temporary, path);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  } finally {
    await rm(temporary, { force: true });
  }
}

/** A link appears with all of its content; some network file systems know only copies. */
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

/** What is safe as a file name everywhere; a hash where names are many, long or strange. */
export function fileName(names: readonly string[]): string {
  const [name = ''] = names;
  const plain = name.replace(/^\*/, 'wildcard').replace(/:(?=\d+$)/, '-');
  if (names.length === 1 && /^[a-z0-9_][a-z0-9._-]{0,99}$/.test(plain)) return plain;
  return createHash('sha256').update(JSON.stringify(names)).digest('hex').slice(0, 32);
}
