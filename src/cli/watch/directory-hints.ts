import type { WatchDisk } from './disk.ts';

interface Watch {
  /** Of the directory; another one by the same name is watched anew. */
  readonly identity: string;
  readonly sinceMs: number;
  readonly close: () => void;
}

/** Watches of the system over directories. They only hint: whoever relies on them misses changes. */
export class DirectoryHints {
  readonly #disk: WatchDisk;
  readonly #onEvent: (directory: string, kind: string, name: string | null) => void;
  readonly #onFailure: (error: unknown) => void;
  readonly #watches = new Map<string, Watch>();

  constructor(
    disk: WatchDisk,
    onEvent: (directory: string, kind: string, name: string | null) => void,
    onFailure: (error: unknown) => void,
  ) {
    this.#disk = disk;
    this.#onEvent = onEvent;
    this.#onFailure = onFailure;
  }

  /** Watches a directory that has just answered: to watch one that hangs would block this thread. */
  open(directory: string, identity: string | null, nowMs: number): void {
    const present = this.#watches.get(directory);
    if (present?.identity === identity) return;
    this.#close(directory);
    if (identity === null) return;
    try {
      const close = this.#disk.watch(directory, (kind, name) =>
        this.#onEvent(directory, kind, name),
      );
      this.#watches.set(directory, { identity, sinceMs: nowMs, close });
    } catch (error) {
      this.#watches.set(directory, { identity, sinceMs: Number.POSITIVE_INFINITY, close() {} });
      this.#onFailure(error);
    }
  }

  /** Since when the system can be expected to tell; never where it is not watched. */
  sinceMs(directory: string): number {
    return this.#watches.get(directory)?.sinceMs ?? Number.POSITIVE_INFINITY;
  }

  /** Lets go of all but these. */
  keep(directories: ReadonlySet<string>): void {
    for (const directory of this.#watches.keys()) {
      if (!directories.has(directory)) this.#close(directory);
    }
  }

  #close(directory: string): void {
    this.#watches.get(directory)?.close();
    this.#watches.delete(directory);
  }
}
