import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  statSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { codeOf } from './error.ts';

/** Bytes of a file that a configuration names. */
const MAX_FILE_BYTES = 16 * 1024 * 1024;

/** What is given to a process on purpose: nothing, the standard input, and what a shell has opened for it. */
const GIVEN = /^\/(?:dev\/(?:null|stdin|fd\/\d+)|proc\/self\/fd\/\d+)$/;

/**
 * Reads a file that a configuration names. Reading a named pipe or a device may never end, and nothing else would
 * happen in the process meanwhile.
 *
 * @throws Error of the system; Error without a code if it is not a regular file, or larger than 16 MiB
 */
export function readRegularFile(path: string): Buffer {
  if (GIVEN.test(path)) return readFileSync(path);
  // Opening a pipe would otherwise wait for someone who writes to it.
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const stats = fstatSync(fd);
    // A directory has an error of its own when it is read.
    if (!stats.isFile() && !stats.isDirectory()) throw new Error('it is not a regular file');
    if (stats.size > MAX_FILE_BYTES) throw new Error(`it is larger than ${MAX_FILE_BYTES} bytes`);
    return readFileSync(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Creates a directory with mode 0700 and its missing parents, if it does not exist. Node's own recursive `mkdir` never
 * returns in a file system such as /proc, where a directory cannot be created although its parent exists.
 *
 * @throws Error of the system
 */
export function makeDirectory(path: string): void {
  try {
    mkdirSync(path, 0o700);
  } catch (error) {
    const parent = dirname(path);
    const code = codeOf(error);
    if (code === 'ENOENT' && parent !== path && !isDirectory(parent)) {
      makeDirectory(parent);
      makeDirectory(path);
    } else if (code !== 'EEXIST' || !isDirectory(path)) {
      throw error;
    }
  }
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
