// chokidar watches the directories and gives hints. Every two seconds the watch also looks at
// dates, sizes and identities, because some changes cause no hint (mounted files, network drives).
// Only files where these differ are read. A drive that hangs costs one thread of Node's four and
// delays no other file.

import { dirname } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { messageOf } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import {
  type DirectoryEvents,
  type DirectoryListener,
  systemEvents,
  WatchedDirectories,
} from './directory-events.ts';
import { Devices, type Interest, systemDisk, type WatchDisk, WatchedPath } from './watched-path.ts';

/** What a configuration was read from. */
export interface WatchedFiles {
  /** Absolute paths, also of files that do not exist yet. */
  readonly files: readonly string[];
  /** Directories in which a new file may count. */
  readonly directories: readonly string[];
}

/** Digests by path; that of a directory ends with `/`. */
export type ReadDigests = ReadonlyMap<string, string>;

export interface WatchOptions {
  /**
   * Called when the content has changed and been quiet for a moment; calls never overlap.
   *
   * @param unanswered files that do not answer: to read them would block. Once they do, there is
   *   another call.
   */
  readonly onChange: (unanswered: readonly string[]) => Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
  /** @default the system's */
  readonly disk?: WatchDisk;
  /** @default the system's */
  readonly events?: (listener: DirectoryListener) => DirectoryEvents;
}

/** Writes that follow each other so quickly are one save. */
const QUIET_MS = 100;
/** A file that never comes to rest is read after this time all the same. */
const PATIENCE_MS = 1_000;
/** All paths are looked at in this time, or at one in each {@link PACE_MS}, whichever takes longer. */
const POLL_MS = 2_000;
const PACE_MS = 5;

/**
 * Watches the content of files, not their dates: a save by renaming, a swapped symlink (as
 * Kubernetes does it) and a plain write are the same, and touching a file is nothing. The system's
 * watches of the directories are hints; where it tells nothing (a bind-mounted file, a network drive)
 * dates, size and identity are looked at from time to time. Only what differs in them is read.
 */
export class FileWatcher {
  readonly #options: WatchOptions;
  readonly #devices: Devices;
  readonly #directories: WatchedDirectories;
  #watched: WatchedFiles = { files: [], directories: [] };
  #paths: ReadonlyMap<string, WatchedPath> = new Map();
  /** What is in each directory, itself included. */
  #byDirectory: ReadonlyMap<string, readonly WatchedPath[]> = new Map();
  /** To be looked at when it is quiet. */
  readonly #hinted = new Set<WatchedPath>();
  /** Seen to differ before the system told. */
  readonly #untold = new Set<WatchedPath>();
  /** The system has told of them since the last change was: their looks may still be under way. */
  readonly #hintedSince = new Set<WatchedPath>();
  #firstHintMs: number | null = null;
  #cancelQuiet: () => void = () => {};
  #cancelPoll: () => void = () => {};
  #announcedPolling = false;
  #announcedFailure = false;
  /** A change was told while something did not answer. */
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
        failed: (error) => this.#announceFailure(error),
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
        if (this.#owed) this.#tell();
      },
    });
  }

  /**
   * Watches these files from now on, instead of those before.
   *
   * @param read what was read of them: what differs from it is told
   */
  watch(watched: WatchedFiles, read: ReadDigests = new Map()): void {
    // A reload that ends after the watch would keep the process alive for ever.
    if (this.#closed) return;
    if (JSON.stringify(watched) !== JSON.stringify(this.#watched)) this.#take(watched);
    for (const [file, digest] of read) {
      const key = file.endsWith('/') ? keyOf(file.slice(0, -1), 'names') : keyOf(file, 'content');
      this.#paths.get(key)?.know(digest);
    }
  }

  /** Stops, after a reload that is under way. */
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
      // What is known of a file stays known: a change since it was read must still be told.
      paths.set(key, before.get(key) ?? new WatchedPath(path, interest));
    };
    for (const file of watched.files) add(file, 'content');
    for (const directory of watched.directories) add(directory, 'names');
    // The directories, not the files: a file that is replaced would take its watch along.
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
        // Another watch has its own.
        if (this.#closed || watched !== this.#paths) return;
        const different = paths.filter((path) => path.differs && !this.#hinted.has(path));
        for (const path of different) if (!this.#hintedSince.has(path)) this.#untold.add(path);
        if (different.length > 0) this.#await(different);
        this.#poll(Math.max(POLL_MS, PACE_MS * paths.length));
      });
    });
  }

  /** The directories themselves, the files, and whatever is new where a new file may count. */
  #isWanted(path: string): boolean {
    if (this.#byDirectory.has(path)) return true;
    const inside = this.#byDirectory.get(dirname(path)) ?? [];
    return inside.some((one) => one.interest === 'names' || one.path === path);
  }

  #hint(path: string, listed: boolean): void {
    const inside = this.#byDirectory.get(path) ?? this.#byDirectory.get(dirname(path)) ?? [];
    // A file that is added may be what a link beside it leads to.
    const meant = listed ? inside : inside.filter((one) => one.path === path);
    for (const one of meant) {
      this.#untold.delete(one);
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
    const patience = this.#firstHintMs + PATIENCE_MS - now;
    this.#cancelQuiet = clock.after(Math.max(0, Math.min(QUIET_MS, patience)), () => {
      this.#firstHintMs = null;
      const due = [...this.#hinted];
      this.#hinted.clear();
      void this.#devices.ask(due).then(() => {
        if (!this.#closed && due.some(({ differs }) => differs)) this.#tell();
      });
    });
  }

  #tell(): void {
    const now = this.#options.clock.monotonic();
    const unresponsive = [...this.#untold].some(
      ({ path }) => now - this.#directories.sinceMs(path) > POLL_MS,
    );
    if (unresponsive) this.#announcePolling();
    this.#untold.clear();
    this.#hintedSince.clear();
    for (const path of this.#paths.values()) path.tell();
    const { unanswered } = this.#devices;
    this.#owed = unanswered.length > 0;
    this.#running = this.#running.then(() => this.#options.onChange(unanswered));
  }

  #announcePolling(): void {
    if (this.#announcedPolling) return;
    this.#announcedPolling = true;
    this.#options.log.warn(
      'The file system does not report changes here (a mounted file?); hubgate compares the content instead',
    );
  }

  #announceFailure(error: unknown): void {
    if (this.#announcedFailure) return;
    this.#announcedFailure = true;
    this.#options.log.warn('Watching failed; hubgate compares the content instead', {
      error: messageOf(error),
    });
  }
}

function keyOf(path: string, interest: Interest): string {
  return `${interest} ${path}`;
}

function byDirectory(paths: Iterable<WatchedPath>): ReadonlyMap<string, readonly WatchedPath[]> {
  const found = new Map<string, WatchedPath[]>();
  for (const path of paths) {
    const directory = path.interest === 'content' ? dirname(path.path) : path.path;
    const present = found.get(directory);
    if (present === undefined) found.set(directory, [path]);
    else present.push(path);
  }
  return found;
}
