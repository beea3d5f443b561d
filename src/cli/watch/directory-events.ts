import { dirname } from 'node:path';
import { type FSWatcher, watch } from 'chokidar';

/** Reports possible changes of watched directories; some changes are not reported. */
export interface DirectoryEvents {
  add(directory: string): void;
  delete(directory: string): void;
  close(): void;
}

export interface DirectoryListener {
  /** Whether something at this path matters. Other paths are ignored. */
  isWanted(path: string): boolean;
  /** @param listed whether something was added or removed, not only written */
  changed(path: string, listed: boolean): void;
  failed(error: unknown): void;
}

/** The system's own events, through chokidar. */
export function systemEvents(listener: DirectoryListener): DirectoryEvents {
  // Created with the first directory: a gateway without watched files does not need it.
  let watcher: FSWatcher | null = null;
  const open = (): FSWatcher =>
    watch([], {
      // Watches the directories, not the targets of links in them: replacing a link is an event of its
      // directory.
      depth: 0,
      followSymlinks: false,
      ignoreInitial: true,
      persistent: false,
      // It would delay removals for a moment; the file watcher waits for quiet itself.
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
 * The watched directories. If one is replaced by another with the same name, it is watched again. A directory
 * is watched only after it has responded, because watching one that hangs would occupy a thread.
 */
export class WatchedDirectories {
  readonly #events: DirectoryEvents;
  readonly #watched = new Map<string, { readonly identity: string; readonly sinceMs: number }>();

  constructor(events: DirectoryEvents) {
    this.#events = events;
  }

  /** @param identity of the directory; null if it does not exist */
  see(directory: string, identity: string | null, nowMs: number): void {
    if (this.#watched.get(directory)?.identity === identity) return;
    this.#delete(directory);
    if (identity === null) return;
    this.#watched.set(directory, { identity, sinceMs: nowMs });
    this.#events.add(directory);
  }

  /**
   * Since when the directory of a path is watched, in monotonic milliseconds; infinity if it is not watched.
   */
  sinceMs(path: string): number {
    return this.#watched.get(dirname(path))?.sinceMs ?? Number.POSITIVE_INFINITY;
  }

  /** Stops watching all others. */
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
