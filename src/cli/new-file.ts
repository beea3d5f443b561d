import { randomBytes } from 'node:crypto';
import {
  closeSync,
  fchmodSync,
  fchownSync,
  fsyncSync,
  lstatSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { open, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import { readInput } from './config-source.ts';

/**
 * Writes a file that must not exist yet, readable only by its owner unless `mode` differs. The name exists only once the
 * whole content is on the disk. Until then, it has a name that ends with `.partial`, which remains if the process is
 * killed. Nothing remains if the disk is full or `content` cannot be read to its end.
 *
 * @throws {HubgateError} `file-exists`, `unwritable-file`, and what `content` throws
 */
export async function writeNew(
  file: string,
  content: string | AsyncIterable<string>,
  mode = 0o600,
): Promise<void> {
  const partial = `${file}.${randomBytes(4).toString('hex')}.partial`;
  try {
    // What exists already is found before the work, and again after it.
    if (lstatSync(file, { throwIfNoEntry: false }) !== undefined) throw exists(file);
    const opened = await open(partial, 'wx', mode);
    try {
      await writeFile(opened, content);
      await opened.sync();
      await (await open(file, 'wx', mode)).close();
      await rename(partial, file);
    } catch (error) {
      await rm(partial, { force: true });
      throw error;
    } finally {
      await opened.close();
    }
  } catch (cause) {
    throw cause instanceof HubgateError ? cause : unwritable(file, cause);
  }
}

/** Errors of a disk that is full or broken: in place, only a part of the text would be written. */
const UNSAFE = ['ENOSPC', 'EDQUOT', 'EFBIG', 'EIO'];

/**
 * Replaces the content of a file in one step, so that a full disk leaves it as it is. Links, owner and mode stay. A file
 * with several names, and one that this user may write but not replace, is written in place: the user may be unable to
 * create files in the directory, or to give them away, or the file may be a mount of its own.
 *
 * @throws {HubgateError} `unwritable-file`
 */
export function replaceContent(file: string, text: string): void {
  try {
    const path = realpathSync(file);
    // A new file would take the place of one that is protected against writing.
    closeSync(openSync(path, 'r+'));
    if (statSync(path).nlink > 1) return writeFileSync(path, text);
    try {
      replaceAtOnce(path, text);
    } catch (error) {
      if (UNSAFE.includes(codeOf(error) ?? '')) throw error;
      writeFileSync(path, text);
    }
  } catch (cause) {
    throw unwritable(file, cause);
  }
}

/** Puts a new file with the same owner and mode in the place of another one. */
function replaceAtOnce(path: string, text: string): void {
  // Patterns of imports do not match hidden files.
  const suffix = randomBytes(6).toString('hex');
  const temporary = join(dirname(path), `.${basename(path)}.${suffix}`);
  const { mode, uid, gid } = statSync(path);
  // By its descriptor: in a directory of another user, the name may lead elsewhere by now.
  const opened = openSync(temporary, 'wx', 0o600);
  try {
    writeFileSync(opened, text);
    fchownSync(opened, uid, gid);
    fchmodSync(opened, mode & 0o7777);
    fsyncSync(opened);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  } finally {
    closeSync(opened);
  }
}

/** The error for a file that could not be written. */
export function unwritable(file: string, cause: unknown): HubgateError {
  if (codeOf(cause) === 'EEXIST') return exists(file, cause);
  const message = `Cannot write ${file}: ${messageOf(cause)}`;
  return new HubgateError('unwritable-file', message, { cause });
}

function exists(file: string, cause?: unknown): HubgateError {
  const message = `${file} exists already; choose another file, or move it away`;
  return new HubgateError('file-exists', message, { cause });
}

/**
 * The value of an option that can be literal, `@FILE`, or `@-` for standard input. One trailing newline of a
 * file is removed, with a carriage return before it.
 *
 * @throws HubgateError `unreadable-file`
 */
export function argumentValue(value: string): string {
  if (!value.startsWith('@')) return value;
  return readInput(value.slice(1)).toString('utf8').replace(/\n$/, '').replace(/\r$/, '');
}
