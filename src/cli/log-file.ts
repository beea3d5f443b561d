import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import type { RollOptions } from '../config/config.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import { makeDirectory } from '../kernel/files.ts';
import { orNull } from '../kernel/parse.ts';

/** How often the writer checks whether the path still leads to the open file, and how large it is. */
const LOOK_MS = 1000;
/** How long a file that cannot be rotated grows before the next attempt. */
const RETRY_MS = 60_000;
/** How long lines wait in all for a slow reader of a pipe, between two looks. */
const MAX_WAIT_MS = 100;
/** Opening a pipe without a reader, and writing to a full one, then fail instead of blocking the process. */
const OPEN_FLAGS =
  constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

export interface LogFileOptions {
  readonly path: string;
  /** null: the file grows until another program moves it away. */
  readonly roll: RollOptions | null;
  /** Permissions of a new file, in octal; the process's umask is applied. */
  readonly mode: string;
  readonly clock: Clock;
  /** Called when lines begin to be dropped or the file cannot be rotated, and when that is over. */
  readonly onTrouble: (text: string) => void;
}

/**
 * A log file. A line is written before the call returns, and a failure never affects the caller: lines that
 * cannot be written are dropped and counted. This includes lines that nobody reads from a pipe. A new file begins
 * when the old one is too large or too old, or when it has been moved away. A file that cannot be rotated keeps
 * growing. Several processes can write to the same file.
 */
export class LogFile {
  readonly #options: LogFileOptions;
  #fd: number | null = null;
  #inode = 0;
  /** A pipe or a device has no size, and is never moved. */
  #isFile = false;
  #size = 0;
  #begunAt = 0;
  #lookAt = 0;
  /** How long lines have waited since the last look. */
  #waitedMs = 0;
  /** Whether a failure was reported, and its end was not. */
  #isFailing = false;
  /** Lines that were lost since the failure began. */
  #dropped = 0;
  /** A file that could not be rotated is not rotated before this time. */
  #rollAt = 0;
  #cannotRoll = false;
  /** The last line was cut short. The next one begins on a new line. */
  #broken = false;

  /** @throws HubgateError `log-failed` if the file cannot be opened */
  constructor(options: LogFileOptions) {
    this.#options = options;
    const { path } = options;
    try {
      this.#fd = this.#open();
    } catch (cause) {
      if (codeOf(cause) === 'ENXIO') {
        // A pipe without a reader, which may come later.
        this.#drop(cause, 0);
        return;
      }
      throw new HubgateError(
        'log-failed',
        `The log ${path} cannot be opened: ${messageOf(cause)}`,
        { cause },
      );
    }
  }

  /** Never throws. */
  write(line: string): void {
    try {
      this.#renew();
      this.#append(this.#broken ? `\n${line}` : line);
    } catch (error) {
      this.#drop(error);
      return;
    }
    this.#broken = false;
    if (!this.#isFailing) return;
    this.#options.onTrouble(
      `The log ${this.#options.path} can be written again; lines lost: ${this.#dropped}`,
    );
    this.#isFailing = false;
    this.#dropped = 0;
  }

  /** Continues in a new file with the same name. The file that was moved away gets no more lines. */
  reopen(): void {
    this.#lookAt = 0;
    try {
      this.#renew();
    } catch (error) {
      this.#drop(error, 0);
    }
  }

  close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }

  #open(): number {
    const { path, clock, mode } = this.#options;
    makeDirectory(dirname(path));
    const fd = openSync(path, OPEN_FLAGS, Number.parseInt(mode, 8));
    const found = fstatSync(fd);
    const { ino, size, birthtimeMs } = found;
    this.#isFile = found.isFile();
    this.#inode = ino;
    this.#size = size;
    this.#begunAt = size === 0 ? clock.now() : birthtimeMs;
    this.#lookAt = clock.monotonic() + LOOK_MS;
    return fd;
  }

  #renew(): void {
    const { path, roll, clock } = this.#options;
    if (this.#fd === null) {
      this.#fd = this.#open();
    } else if (clock.monotonic() >= this.#lookAt) {
      this.#lookAt = clock.monotonic() + LOOK_MS;
      this.#waitedMs = 0;
      const found = statsOf(path);
      if (found?.ino !== this.#inode) this.#begin();
      // Other processes write to it as well.
      else if (this.#isFile) this.#size = found.size;
    }
    if (roll === null || !this.#isFile || this.#size === 0) return;
    if (clock.monotonic() < this.#rollAt) return;
    const isOld = roll.intervalMs > 0 && clock.now() - this.#begunAt >= roll.intervalMs;
    if (this.#size >= roll.size || isOld) this.#roll(roll);
  }

  /** Renames the file, unless another process has done so, and removes files that are too old. */
  #roll(roll: RollOptions): void {
    const { path, clock } = this.#options;
    try {
      if (statsOf(path)?.ino === this.#inode) this.#moveTo(rolledName(path, clock.now()));
    } catch (error) {
      this.#rollAt = clock.monotonic() + RETRY_MS;
      this.#reportRoll('cannot be rotated', error, 'it grows until it can');
      return;
    }
    this.#begin();
    try {
      this.#removeExpired(roll);
    } catch (error) {
      this.#reportRoll('has old files that cannot be removed', error, 'they stay until they can');
      return;
    }
    if (!this.#cannotRoll) return;
    this.#cannotRoll = false;
    this.#options.onTrouble(`The log ${path} can be rotated again`);
  }

  /** Once, because lines can still be written. */
  #reportRoll(what: string, error: unknown, until: string): void {
    if (this.#cannotRoll) return;
    this.#cannotRoll = true;
    const why = codeOf(error) ?? messageOf(error);
    this.#options.onTrouble(`The log ${this.#options.path} ${what} (${why}); ${until}`);
  }

  #removeExpired(roll: RollOptions): void {
    const { path, clock } = this.#options;
    const rolled = rolledFiles(path);
    const expired = rolled.filter(
      (file, index) =>
        index < rolled.length - roll.keep ||
        (roll.keepForMs > 0 && modifiedAt(file) < clock.now() - roll.keepForMs),
    );
    for (const file of expired) rmSync(file, { force: true });
  }

  /** Renames the file. If another process has done so in the meantime, its new file stays where it is. */
  #moveTo(rolled: string): void {
    const { path } = this.#options;
    try {
      renameSync(path, rolled);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return;
      throw error;
    }
    if (statsOf(rolled)?.ino === this.#inode) return;
    try {
      // Unlike a rename, it replaces no file.
      linkSync(rolled, path);
      rmSync(rolled);
    } catch {
      // There is a newer file already, so that this one has been rotated early.
    }
  }

  #begin(): void {
    this.close();
    this.#fd = this.#open();
  }

  #append(text: string): void {
    const bytes = Buffer.from(text);
    let written = 0;
    while (written < bytes.length && this.#fd !== null) {
      try {
        written += writeSync(this.#fd, bytes, written);
        this.#broken = true;
      } catch (error) {
        if (codeOf(error) !== 'EAGAIN' || this.#waitedMs >= MAX_WAIT_MS) throw error;
        // The pipe is full.
        this.#waitedMs += 1;
        sleepSync(1);
      }
    }
    this.#size += bytes.length;
  }

  #drop(error: unknown, lines = 1): void {
    this.#dropped += lines;
    if (!this.#isFailing) {
      this.#isFailing = true;
      const { path } = this.#options;
      const why = codeOf(error) ?? messageOf(error);
      this.#options.onTrouble(
        `The log ${path} cannot be written (${why}); lines are dropped until it can`,
      );
    }
  }
}

/** Blocks the process. */
export function sleepSync(milliseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

/**
 * `/var/log/access-2026-11-22T02-40-00.000-4711.log` next to `/var/log/access.log`. With the id of the process, two
 * processes cannot choose the same name.
 */
function rolledName(path: string, now: number): string {
  const extension = extname(path);
  const stamp = new Date(now).toISOString().replaceAll(':', '-').replace('Z', '');
  return join(dirname(path), `${basename(path, extension)}-${stamp}-${process.pid}${extension}`);
}

/** Oldest first. */
function rolledFiles(path: string): string[] {
  const extension = extname(path);
  const begin = `${basename(path, extension)}-`;
  return readdirSync(dirname(path))
    .filter((name) => name.startsWith(begin) && name.endsWith(extension))
    .filter((name) => STAMP.test(name.slice(begin.length, name.length - extension.length)))
    .sort((a, b) => (a < b ? -1 : 1))
    .map((name) => join(dirname(path), name));
}

/** An earlier version left out the id of the process. */
const STAMP = /^\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}\.\d{3}(?:-\d+)?$/;

/** Returns null if there is none. */
function statsOf(path: string): Stats | null {
  return statSync(path, { throwIfNoEntry: false }) ?? null;
}

function modifiedAt(path: string): number {
  // Another process may have removed it.
  return orNull(() => statSync(path).mtimeMs) ?? 0;
}
