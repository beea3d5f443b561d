import { type BigIntStats, watch } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';

/** What is known of a file without reading it. */
export type Stats = Pick<BigIntStats, 'dev' | 'ino' | 'size' | 'mtimeNs' | 'ctimeNs' | 'mtimeMs'>;

/** What a watch asks of the disk, where any answer may be late or never come. */
export interface WatchDisk {
  /** Follows symlinks. */
  stat(path: string): Promise<Stats>;
  readFile(path: string): Promise<Uint8Array>;
  readdir(path: string): Promise<readonly string[]>;
  /**
   * Hints at what happens in a directory: `rename` for what comes and goes, `change` for what is
   * written. Where the system tells nothing there are none.
   *
   * @throws where no more can be watched
   */
  watch(directory: string, onEvent: (kind: string, name: string | null) => void): () => void;
}

export const systemDisk: WatchDisk = {
  stat: (path) => stat(path, { bigint: true }),
  readFile: (path) => readFile(path),
  readdir: (path) => readdir(path),
  watch(directory, onEvent) {
    const watcher = watch(directory, { persistent: false }, onEvent);
    // A directory that is gone: its next look tells.
    watcher.on('error', () => watcher.close());
    return () => watcher.close();
  },
};
