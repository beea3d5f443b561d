import { dirname } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { addToList } from '../../kernel/collections.ts';
import { messageOf } from '../../kernel/error.ts';
import type { LogFields, Logger } from '../../kernel/log.ts';
import { Devices, type Interest, systemDisk, type WatchDisk, WatchedPath } from './watched-path.ts';
import { type FSWatcher, watch } from 'chokidar';

/** The files and directories that a configuration was read from. */
export interface WatchedFiles {
  /** Absolute paths, including those of files that do not exist yet. */
  readonly files: readonly string[];
  /** Directories in which a new file may matter. */
  readonly directories: readonly string[];
}

/** Digests by path; the path of a directory ends with `/`. */
export type ReadDigests = ReadonlyMap<string, string>;

export interface WatchOptions {
  /**
   * Called when the content has changed and has been quiet for a moment; calls never overlap.
   *
   * @param unanswered files that do not respond: reading them would block. When they respond, the function is
   * called again.
   */
  readonly onChange: (unanswered: readonly string[]) => Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
  /** @default the system's file access */
  readonly disk?: WatchDisk;
  /** @default the system's events */
  readonly events?: (listener: DirectoryListener) => DirectoryEvents;
}

/** Writes that follow each other within this time count as one save. */
const QUIET_MS = 100;
/** A file that keeps changing is read after this time nevertheless. */
const MAX_DELAY_MS = 1_000;
/** All paths are checked in this time, or one path per {@link PACE_MS}, whichever takes longer. */
const POLL_MS = 2_000;
const PACE_MS = 5;

/**
 * Watches the content of files, not their dates. A save by renaming, a replaced symlink (as in Kubernetes)
 * and a plain write are treated alike; touching a file has no effect. The system's events of the directories
 * are hints. Because some changes cause no event (a bind-mounted file, a network drive), dates, sizes and
 * identities are also checked every two seconds. Only files in which these differ are read. A drive that hangs
 * costs one of Node's four threads and delays no other file.
 */
export class FileWatcher {
  readonly #options: WatchOptions;
  readonly #devices: Devices;
  readonly #directories: WatchedDirectories;
  #watched: WatchedFiles = { files: [], directories: [] };
  #paths: ReadonlyMap<string, WatchedPath> = new Map();
  /** The watched paths in each directory, including the directory itself. */
  #byDirectory: ReadonlyMap<string, readonly WatchedPath[]> = new Map();
  /** Paths to check when it is quiet. */
  readonly #hinted = new Set<WatchedPath>();
  /** Paths that differed before the system reported a change. */
  readonly #unreported = new Set<WatchedPath>();
  /** Paths that the system has reported since the last change. Their checks may still be in progress. */
  readonly #hintedSince = new Set<WatchedPath>();
  #firstHintMs: number | null = null;
  #cancelQuiet: () => void = () => {};
  #cancelPoll: () => void = () => {};
  /** Warnings that have been logged; each is logged once. */
  readonly #warned = new Set<string>();
  /** A change was reported while some file did not respond. */
  #owed = false;
  #running: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(options: WatchOptions) {
    const { clock, log, disk = systemDisk, events = systemEvents } = options;
    this.#options = options;
    this.#directories = new WatchedDirectories(
      events({
        isWanted: (path) => this.#isWanted(path),
        changed: (path, listed) => this.#hint(path, listed),
        failed: (error) =>
          this.#warnOnce('Watching failed; hubgate compares the content instead', {
            error: messageOf(error),
          }),
      }),
    );
    this.#devices = new Devices({
      clock,
      ask: async (path) => {
        await path.look(disk, clock);
        if (path.interest === 'content' || this.#closed) return;
        this.#directories.see(path.path, path.identity, clock.monotonic());
      },
      onUnresponsive: (path) => log.warn('A watched file cannot be read in time', { file: path }),
      onAnswer: (path) => {
        log.info('A watched file can be read again', { file: path });
        if (this.#owed) this.#report();
      },
    });
  }

  /**
   * Watches these files from now on, instead of the previous ones.
   *
   * @param read digests of what was read; any difference counts as a change
   */
  watch(watched: WatchedFiles, read: ReadDigests = new Map()): void {
    // A reload that ends after the watch would keep the process alive forever.
    if (this.#closed) return;
    if (JSON.stringify(watched) !== JSON.stringify(this.#watched)) this.#take(watched);
    for (const [file, digest] of read) {
      const key = file.endsWith('/') ? keyOf(file.slice(0, -1), 'names') : keyOf(file, 'content');
      this.#paths.get(key)?.know(digest);
    }
  }

  /** Stops, after a reload that is in progress. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelQuiet();
    this.#cancelPoll();
    this.#directories.close();
    await this.#running;
  }

  #take(watched: WatchedFiles): void {
    this.#watched = watched;
    this.#hintedSince.clear();
    const before = this.#paths;
    const paths = new Map<string, WatchedPath>();
    const add = (path: string, interest: Interest): void => {
      const key = keyOf(path, interest);
      // Known digests are kept, so that a change since the last read is still reported.
      paths.set(key, before.get(key) ?? new WatchedPath(path, interest));
    };
    for (const file of watched.files) add(file, 'content');
    for (const directory of watched.directories) add(directory, 'names');
    // Watches the directories, not the files: the watch of a file ends when the file is replaced.
    for (const file of watched.files) {
      const directory = dirname(file);
      if (!paths.has(keyOf(directory, 'names'))) add(directory, 'identity');
    }
    this.#paths = paths;
    this.#byDirectory = byDirectory(paths.values());
    this.#directories.keep(new Set(this.#byDirectory.keys()));
    this.#cancelPoll();
    this.#poll(0);
  }

  #poll(delayMs: number): void {
    const watched = this.#paths;
    const paths = [...watched.values()];
    this.#cancelPoll = this.#options.clock.after(delayMs, () => {
      void this.#devices.ask(paths).then(() => {
        // A newer call has its own paths.
        if (this.#closed || watched !== this.#paths) return;
        const different = paths.filter((path) => path.differs && !this.#hinted.has(path));
        for (const path of different) if (!this.#hintedSince.has(path)) this.#unreported.add(path);
        if (different.length > 0) this.#await(different);
        this.#poll(Math.max(POLL_MS, PACE_MS * paths.length));
      });
    });
  }

  /**
   * The directories themselves, the files, and anything new in a directory in which a new file may matter.
   */
  #isWanted(path: string): boolean {
    if (this.#byDirectory.has(path)) return true;
    const inside = this.#byDirectory.get(dirname(path)) ?? [];
    return inside.some((one) => one.interest === 'names' || one.path === path);
  }

  #hint(path: string, listed: boolean): void {
    const inside = this.#byDirectory.get(path) ?? this.#byDirectory.get(dirname(path)) ?? [];
    // An added file may be the target of a link next to it.
    const meant = listed ? inside : inside.filter((one) => one.path === path);
    for (const one of meant) {
      this.#unreported.delete(one);
      this.#hintedSince.add(one);
    }
    if (meant.length > 0) this.#await(meant);
  }

  /** Waits for quiet: editors and deployments write in several steps. */
  #await(paths: readonly WatchedPath[]): void {
    if (this.#closed) return;
    const { clock } = this.#options;
    for (const path of paths) this.#hinted.add(path);
    const now = clock.monotonic();
    this.#firstHintMs ??= now;
    this.#cancelQuiet();
    const leftMs = this.#firstHintMs + MAX_DELAY_MS - now;
    this.#cancelQuiet = clock.after(Math.max(0, Math.min(QUIET_MS, leftMs)), () => {
      this.#firstHintMs = null;
      const due = [...this.#hinted];
      this.#hinted.clear();
      void this.#devices.ask(due).then(() => {
        if (!this.#closed && due.some(({ differs }) => differs)) this.#report();
      });
    });
  }

  #report(): void {
    const now = this.#options.clock.monotonic();
    const unresponsive = [...this.#unreported].some(
      ({ path }) => now - this.#directories.sinceMs(path) > POLL_MS,
    );
    if (unresponsive) this.#warnOnce(UNREPORTED);
    this.#unreported.clear();
    this.#hintedSince.clear();
    for (const path of this.#paths.values()) path.markReported();
    const { unanswered } = this.#devices;
    this.#owed = unanswered.length > 0;
    this.#running = this.#running.then(() => this.#options.onChange(unanswered));
  }

  #warnOnce(message: string, fields?: LogFields): void {
    if (this.#warned.has(message)) return;
    this.#warned.add(message);
    this.#options.log.warn(message, fields);
  }
}

const UNREPORTED =
  'The file system does not report changes here (a mounted file?); hubgate compares the content instead';

function keyOf(path: string, interest: Interest): string {
  return `${interest} ${path}`;
}

function byDirectory(paths: Iterable<WatchedPath>): ReadonlyMap<string, readonly WatchedPath[]> {
  const found = new Map<string, WatchedPath[]>();
  for (const path of paths) {
    const directory = path.interest === 'content' ? dirname(path.path) : path.path;
    addToList(found, directory, path);
  }
  return found;
}

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
function systemEvents(listener: DirectoryListener): DirectoryEvents {
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
