import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { watch as watchPaths } from 'chokidar';
import type { Clock } from '../kernel/clock.ts';
import type { Logger } from '../kernel/log.ts';

/** What a configuration was read from. */
export interface WatchedFiles {
  /** Absolute paths, also of files that do not exist yet. */
  readonly files: readonly string[];
  /** Directories in which a new file may count. */
  readonly directories: readonly string[];
}

export interface WatchOptions {
  /** Called when the content has changed and been quiet for a moment; calls never overlap. */
  readonly onChange: () => Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Writes that follow each other so quickly are one save. */
const QUIET_MS = 100;
/** A file that never comes to rest is read after this time all the same. */
const PATIENCE_MS = 1000;
/** Where the file system tells nothing (a bind-mounted file, a network drive) the content is compared. */
const POLL_MS = 500;

/**
 * Watches the content of files, not their dates: a save by renaming, a swapped symlink (as
 * Kubernetes does it) and a plain write are the same, and touching a file is nothing.
 */
export class FileWatcher {
  readonly #options: WatchOptions;
  #watched: WatchedFiles = { files: [], directories: [] };
  /** What was found in each file and directory when it was last told. */
  #content: ReadonlyMap<string, string> = new Map();
  #stopWatching: () => Promise<void> = async () => {};
  #cancelQuiet: () => void = () => {};
  #cancelPoll: () => void = () => {};
  #firstChange: number | null = null;
  /** Since when the file system can be expected to tell; null: not yet. */
  #readyAt: number | null = null;
  /** Whether it has told of this change. */
  #notified = false;
  #announcedPolling = false;
  #running: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /** Watches these files from now on, instead of those before. */
  watch(watched: WatchedFiles): void {
    // A reload that ends after the watch would keep the process alive for ever.
    if (this.#closed || JSON.stringify(watched) === JSON.stringify(this.#watched)) return;
    this.#watched = watched;
    // What is known of a file stays known: a change since it was read must still be told.
    this.#content = new Map([...contentOf(watched), ...known(this.#content, watched)]);
    void this.#stopWatching();
    this.#readyAt = null;
    const directories = new Set([
      ...watched.files.map((file) => dirname(file)),
      ...watched.directories,
    ]);
    // The directories, not the files: a file that is replaced would take its watch along. Symlinks
    // are not followed, for the swap of a link is the very event that is waited for.
    const watcher = watchPaths([...directories], {
      depth: 0,
      followSymlinks: false,
      ignoreInitial: true,
    });
    watcher.on('ready', () => {
      this.#readyAt = this.#options.clock.monotonic();
    });
    watcher.on('all', () => {
      this.#notified = true;
      this.#changed();
    });
    watcher.on('error', (error) => {
      this.#options.log.warn('Watching failed; the content is compared instead', {
        error: String(error),
      });
    });
    this.#stopWatching = () => watcher.close();
    this.#cancelPoll();
    this.#poll();
  }

  /** Stops, after a reload that is under way. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelQuiet();
    this.#cancelPoll();
    await this.#stopWatching();
    await this.#running;
  }

  #poll(): void {
    this.#cancelPoll = this.#options.clock.after(POLL_MS, () => {
      if (this.#firstChange === null && differs(contentOf(this.#watched), this.#content)) {
        // What has changed before the watch was ready is nothing that it could have told.
        this.#notified =
          this.#readyAt === null || this.#options.clock.monotonic() - this.#readyAt < 2 * POLL_MS;
        this.#changed();
      }
      this.#poll();
    });
  }

  /** Waits for quiet: editors and deployments write in several steps. */
  #changed(): void {
    if (this.#closed) return;
    const { clock } = this.#options;
    const now = clock.monotonic();
    this.#firstChange ??= now;
    this.#cancelQuiet();
    const patience = this.#firstChange + PATIENCE_MS - now;
    this.#cancelQuiet = clock.after(Math.max(0, Math.min(QUIET_MS, patience)), () => {
      this.#firstChange = null;
      const content = contentOf(this.#watched);
      if (!differs(content, this.#content)) return;
      this.#content = content;
      if (!this.#notified) this.#announcePolling();
      this.#running = this.#running.then(() => this.#options.onChange());
    });
  }

  #announcePolling(): void {
    if (this.#announcedPolling) return;
    this.#announcedPolling = true;
    this.#options.log.warn(
      'The file system does not tell of changes here (a mounted file?); the content is compared instead',
    );
  }
}

/** A digest of each file, and of what each directory lists. */
function contentOf({ files, directories }: WatchedFiles): ReadonlyMap<string, string> {
  return new Map([
    ...files.map((file) => [file, digestOf(file)] as const),
    ...directories.map((directory) => [`${directory}/`, listingOf(directory)] as const),
  ]);
}

/** What of some content is still watched. */
function known(
  content: ReadonlyMap<string, string>,
  { files, directories }: WatchedFiles,
): (readonly [string, string])[] {
  const keys = new Set([...files, ...directories.map((directory) => `${directory}/`)]);
  return [...content].filter(([key]) => keys.has(key));
}

function differs(a: ReadonlyMap<string, string>, b: ReadonlyMap<string, string>): boolean {
  return a.size !== b.size || [...a].some(([key, value]) => b.get(key) !== value);
}

function digestOf(file: string): string {
  try {
    return createHash('sha256').update(readFileSync(file)).digest('hex');
  } catch {
    // Absent for the moment: an editor may be replacing it.
    return '';
  }
}

function listingOf(directory: string): string {
  try {
    return readdirSync(directory).sort().join('\0');
  } catch {
    // Absent is a state as well; the import warns of it.
    return '';
  }
}
