import { hash } from 'node:crypto';
import { type BigIntStats, constants } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { codeOf } from '../../kernel/error.ts';

/**
 * Resolution of the coarsest file dates (FAT). Writes within this time may have the same date, so content is read
 * until its date is known for that long.
 */
const DATE_MS = 2_000;

/** The file does not exist or cannot be read; an editor may be replacing it. */
export const ABSENT = '';

/** A file whose content is compared, or a directory whose names are compared. */
export class WatchedPath {
  readonly path: string;
  readonly #isDirectory: boolean;
  /** The directory whose events concern it. */
  readonly directory: string;
  /** Its drive; null until the drive is known. */
  #device: bigint | null = null;
  /** The system has reported a possible change since the last report. */
  isHinted = false;
  /** The digest that was last reported; null if there is none yet. */
  #reported: string | null = null;
  #found: string | null = null;
  #stamp = ABSENT;
  /** When the stamp was first seen. */
  #stampMs = 0;
  /** The content was read when the stamp had been known for long enough. */
  #isSettled = false;

  /** @param path that of a directory ends with `/` */
  constructor(path: string) {
    this.#isDirectory = path.endsWith('/');
    this.path = this.#isDirectory ? path.slice(0, -1) : path;
    this.directory = this.#isDirectory ? this.path : dirname(path);
  }

  /** Whether the current digest differs from the reported one. */
  get differs(): boolean {
    return this.#found !== this.#reported;
  }

  /** Whether it is on the drive of the other one. While a drive is not known, that of the directory counts. */
  sharesDriveWith(other: WatchedPath): boolean {
    const areKnown = this.#device !== null && other.#device !== null;
    return areKnown ? this.#device === other.#device : this.directory === other.directory;
  }

  hint(): void {
    this.isHinted = true;
  }

  /** Marks the current digest as reported. */
  markReported(): void {
    this.#reported = this.#found;
    this.isHinted = false;
  }

  /** Records a digest that the caller has read and knows. */
  know(digest: string): void {
    if (this.#found !== digest) this.#isSettled = false;
    this.#found = digest;
    this.#reported = digest;
  }

  /** Reads it if its dates, size or identity have changed. The first digest counts as reported. Never rejects. */
  async look(disk: typeof systemDisk, clock: Clock): Promise<void> {
    try {
      const stats = await disk.stat(this.path).catch(nullIfAbsent);
      // Reading a pipe or a device may never end.
      const kind = Number(stats?.mode ?? constants.S_IFREG) & constants.S_IFMT;
      if (kind !== constants.S_IFREG && kind !== constants.S_IFDIR) return;
      if (stats !== null) this.#device = stats.dev;
      const now = clock.monotonic();
      const stamp = stats === null ? ABSENT : stampOf(stats);
      if (stamp !== this.#stamp)
        [this.#stamp, this.#stampMs, this.#isSettled] = [stamp, now, false];
      if (this.#isSettled) return;
      this.#found = stats === null ? ABSENT : await this.#digest(disk);
      this.#isSettled = now - this.#stampMs >= DATE_MS;
      this.#reported ??= this.#found;
    } catch {
      // What is known stays, and the path is read the next time.
    }
  }

  async #digest(disk: typeof systemDisk): Promise<string> {
    if (!this.#isDirectory) return digestOf(await disk.readFile(this.path).catch(nullIfAbsent));
    return digestOfNames(await disk.readdir(this.path).catch(nullIfAbsent));
  }
}

/** @param content null for a file that does not exist */
export function digestOf(content: Uint8Array | null): string {
  return content === null ? ABSENT : hash('sha256', content, 'hex');
}

/** @param names the names in a directory; null if it cannot be listed */
export function digestOfNames(names: readonly string[] | null): string {
  return digestOf(names === null ? null : Buffer.from(names.toSorted().join('\0')));
}

/** A lack of descriptors or of memory, or a failing disk, may pass. They say nothing about the path. */
const PASSING: ReadonlySet<string | undefined> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EIO']);

function nullIfAbsent(error: unknown): null {
  if (PASSING.has(codeOf(error))) throw error;
  return null;
}

function stampOf({ dev, ino, size, mtimeNs, ctimeNs }: Stats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join();
}

/** The file access of a watch. Any call may take long or never return. */
export const systemDisk = {
  /** Follows symlinks. */
  stat: (path: string): Promise<Stats> => stat(path, { bigint: true }),
  readFile: (path: string): Promise<Uint8Array> => readFile(path),
  readdir: (path: string): Promise<readonly string[]> => readdir(path),
};

/** The properties of a file that are known without reading it. */
export type Stats = Pick<BigIntStats, 'mode' | 'dev' | 'ino' | 'size' | 'mtimeNs' | 'ctimeNs'>;
