import { dirname } from 'node:path';
import { type FSWatcher, watch } from 'chokidar';

/** Hints at changes of directories that are asked for; some changes come without a hint. */
export interface DirectoryEvents {
  add(directory: string): void;
  delete(directory: string): void;
  close(): void;
}

export interface DirectoryListener {
  /** Whether something at this path matters; whatever does not is not looked at. */
  isWanted(path: string): boolean;
  /**
   * @param listed whether something was added or removed, and not only written
   */
  changed(path: string, listed: boolean): void;
  failed(error: unknown): void;
}

/** The system's own events, by chokidar. */
export function systemEvents(listener: DirectoryListener): DirectoryEvents {
  // Made with the first directory: a gateway without a file to watch needs none.
  let watcher: FSWatcher | null = null;
  const open = (): FSWatcher =>
    watch([], {
      // The directories, not what links in them lead to: a link that is swapped is an event of its directory.
      depth: 0,
      followSymlinks: false,
      ignoreInitial: true,
      persistent: false,
      // It would hold removals back for a moment; the watch waits for quiet by itself.
      atomic: false,
      ignored: (path) => !listener.isWanted(path),
    })
      .on('all', (event, path) => listener.changed(path, event !== 'change'))
      .on('error', (error) => listener.failed(error));
  return {
    add(directory) {
      watcher ??= open();
      watcher.add(directory);
    },
    delete(directory) {
      watcher?.unwatch(directory);
    },
    close() {
      void watcher?.close();
      watcher = null;
    },
  };
}

/**
 * Which directories are watched. One that is replaced by another of the same name is watched again, and
 * none before it has answered: to watch one that hangs would hold a thread.
 */
export class WatchedDirectories {
  readonly #events: DirectoryEvents;
  readonly #watched = new Map<string, { readonly identity: string; readonly sinceMs: number }>();

  constructor(events: DirectoryEvents) {
    this.#events = events;
  }

  /** @param identity of the directory; null where there is none */
  see(directory: string, identity: string | null, nowMs: number): void {
    if (this.#watched.get(directory)?.identity === identity) return;
    this.#delete(directory);
    if (identity === null) return;
    this.#watched.set(directory, { identity, sinceMs: nowMs });
    this.#events.add(directory);
  }

  /** Since when the directory of a path is watched, in monotonic milliseconds; never: infinity. */
  sinceMs(path: string): number {
    return this.#watched.get(dirname(path))?.sinceMs ?? Number.POSITIVE_INFINITY;
  }

  /** Stops watching all but these. */
  keep(directories: ReadonlySet<string>): void {
    for (const directory of this.#watched.keys())
      if (!directories.has(directory)) this.#delete(directory);
  }

  close(): void {
    this.#watched.clear();
    this.#events.close();
  }

  #delete(directory: string): void {
    if (this.#watched.delete(directory)) this.#events.delete(directory);
  }
}
