import { hash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { codeOf } from '../../kernel/error.ts';

/** Resolution of the coarsest file dates (FAT). Writes within this time may have the same date. */
const DATE_MS = 2_000;

/** The file does not exist or cannot be read; an editor may be replacing it. */
const ABSENT = '';

/** A file whose content is compared, or a directory whose names are compared. */
export class WatchedPath {
  readonly path: string;
  readonly #isDirectory: boolean;
  /** Its drive; the directory takes its place until the drive is known. */
  device: string;
  /** The system has reported a possible change since the last report. */
  isHinted = false;
  /** The digest that was last reported; null if there is none yet. */
  #reported: string | null = null;
  #found: string | null = null;
  /** Which file it is, and which it was at the last report; null if that is not known yet. */
  #identity = ABSENT;
  #reportedIdentity: string | null = null;
  #stamp: string | null = null;
  #stampSeenMs = 0;
  /** Whether different content would have a different stamp. */
  #settled = false;

  /** @param path that of a directory ends with `/` */
  constructor(path: string) {
    this.#isDirectory = path.endsWith('/');
    this.path = this.#isDirectory ? path.slice(0, -1) : path;
    this.device = dirname(this.path);
  }

  /** Whether the current digest differs from the reported one. */
  get differs(): boolean {
    return this.#found !== this.#reported;
  }

  /** Whether the same file has other content, and the system has not reported it. */
  get changedUnreported(): boolean {
    return this.differs && !this.isHinted && this.#identity === this.#reportedIdentity;
  }

  /** Marks the current digest as reported. */
  markReported(): void {
    this.#reported = this.#found;
    this.#reportedIdentity = this.#identity;
    this.isHinted = false;
  }

  /** Records a digest that the caller has read and knows. */
  know(digest: string): void {
    this.#reported = digest;
    this.#reportedIdentity = null;
    if (this.#found !== digest) this.#stamp = null;
    this.#found = digest;
  }

  /** Reads it if its dates, size or identity have changed. The first digest counts as reported. Never rejects. */
  async look(disk: WatchDisk, clock: Clock): Promise<void> {
    const stats = await disk.stat(this.path).catch(absentOrUnknown);
    if (stats === undefined) return;
    if (stats !== null) this.device = String(stats.dev);
    this.#identity = stats === null ? ABSENT : `${stats.dev}:${stats.ino}`;
    this.#reportedIdentity ??= this.#identity;
    const now = clock.monotonic();
    const stamp = stats === null ? ABSENT : stampOf(stats);
    if (stamp !== this.#stamp) {
      this.#stamp = stamp;
      this.#stampSeenMs = now;
    } else if (this.#settled) return;
    const ageMs = stats === null ? DATE_MS : clock.now() - Number(stats.mtimeMs);
    this.#settled = Math.max(now - this.#stampSeenMs, ageMs) >= DATE_MS;
    const found = stats === null ? ABSENT : await this.#read(disk);
    if (found === undefined) {
      // It is read again the next time.
      this.#settled = false;
      return;
    }
    this.#found = found;
    this.#reported ??= found;
  }

  /** Returns undefined if it is unknown. */
  async #read(disk: WatchDisk): Promise<string | undefined> {
    try {
      if (this.#isDirectory) return digestOfNames(await disk.readdir(this.path));
      return digestOf(await disk.readFile(this.path));
    } catch (error) {
      return absentOrUnknown(error) === null ? ABSENT : undefined;
    }
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

function absentOrUnknown(error: unknown): null | undefined {
  return PASSING.has(codeOf(error)) ? undefined : null;
}

function stampOf({ dev, ino, size, mtimeNs, ctimeNs }: Stats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join();
}

/** The properties of a file that are known without reading it. */
export type Stats = Pick<BigIntStats, 'dev' | 'ino' | 'size' | 'mtimeNs' | 'ctimeNs' | 'mtimeMs'>;

/** The file access of a watch. Any call may take long or never return. */
export interface WatchDisk {
  /** Follows symlinks. */
  stat(path: string): Promise<Stats>;
  readFile(path: string): Promise<Uint8Array>;
  readdir(path: string): Promise<readonly string[]>;
}

export const systemDisk: WatchDisk = {
  stat: (path) => stat(path, { bigint: true }),
  readFile: (path) => readFile(path),
  readdir: (path) => readdir(path),
};
