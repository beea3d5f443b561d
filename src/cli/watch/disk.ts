import type { BigIntStats } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';

/** What is known of a file without reading it. */
export type Stats = Pick<BigIntStats, 'dev' | 'ino' | 'size' | 'mtimeNs' | 'ctimeNs' | 'mtimeMs'>;

/** What a watch asks of the disk, where any answer may be late or never come. */
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
