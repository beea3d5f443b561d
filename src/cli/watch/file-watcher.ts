import { dirname } from 'node:path';
import { type FSWatcher, watch } from 'chokidar';
import type { Clock } from '../../kernel/clock.ts';
import { messageOf } from '../../kernel/error.ts';
import type { LogFields, Logger } from '../../kernel/log.ts';
import { systemDisk, WatchedPath } from './watched-path.ts';

/** Digests by absolute path; the path of a directory ends with `/`. */
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
  readonly disk?: typeof systemDisk;
  /** @default the system's events */
  readonly openEvents?: typeof systemEvents;
}

/** Writes that follow each other within this time count as one save. */
const QUIET_MS = 100;
/** A file that keeps changing is read after this time nevertheless. */
const MAX_DELAY_MS = 1_000;
/** All paths are checked in this time, or one path per {@link PACE_MS}, whichever takes longer. */
const POLL_MS = 2_000;
const PACE_MS = 5;
/** A drive that does not respond in this time is left alone until it does. */
const RESPONSE_TIMEOUT_MS = 2_000;
/** So many drives may be unresponsive before no path is checked: each occupies one of Node's four threads. */
const MAX_UNRESPONSIVE = 2;
/**
 * Events of any file in the directories that are used as hints. A log beside the Hubfile causes one with each line, for
 * which chokidar reads the whole directory.
 */
const MAX_EVENTS = 1_000;
const FAILED = 'Watching failed; hubgate compares the content instead';
const UNREPORTED =
  'The system does not report changes here (a mounted file or a link?); hubgate compares the content instead';

/**
 * Watches the content of files, not their dates. A save by renaming, a replaced symlink (as in Kubernetes)
 * and a plain write are treated alike; touching a file has no effect. The system's events of the directories
 * are hints. Because some changes cause no event (a bind-mounted file, a network drive), all paths are also
 * looked at every two seconds. A drive that hangs costs one of Node's four threads and delays other files once.
 */
export class FileWatcher {
  readonly #options: WatchOptions;
  #paths: ReadonlyMap<string, WatchedPath> = new Map();
  #events: Pick<FSWatcher, 'close' | 'closed'> | null = null;
  /** When the system's events were opened. */
  #openedMs = 0;
  /** Cancels the next look; null if none is planned. */
  #cancelLook: (() => void) | null = null;
  /** Looks follow one another. Two at a time would access the same drive. */
  #looks = Promise.resolve();
  /** When a change was first hinted or found since the last look; null if there was none. */
  #changedMs: number | null = null;
  /** The pending path of each unresponsive drive. */
  readonly #unresponsive = new Set<WatchedPath>();
  /** Warnings that have been logged; each is logged once. */
  readonly #warned = new Set<string>();
  #reports = Promise.resolve();
  #closed = false;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /**
   * Watches these paths from now on, instead of the previous ones.
   *
   * @param wanted absolute paths of files, which need not exist yet, and of directories in which a new file may
   * matter, which end with `/`
   * @param read digests of what was read; any difference counts as a change
   */
  watch(wanted: readonly string[], read: ReadDigests = new Map()): void {
    // A reload that ends after the watch would keep the process alive forever.
    if (this.#closed) return;
    const previous = this.#paths;
    // Known digests are kept, so that a change since the last read is still reported.
    this.#paths = new Map(
      wanted.map((path) => [path, previous.get(path) ?? new WatchedPath(path)]),
    );
    for (const [path, digest] of read) this.#paths.get(path)?.know(digest);
    this.#openEvents();
    this.#lookIn(QUIET_MS);
  }

  /** Stops, after a reload that is in progress. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelLook?.();
    void this.#events?.close();
    await this.#reports;
  }

  /**
   * Directories are watched, not files: the watch of a file ends when the file is replaced. A directory may have
   * been replaced as well, so that all are opened again.
   */
  #openEvents(): void {
    const { clock, openEvents = systemEvents } = this.#options;
    const paths = this.#paths;
    void this.#events?.close();
    this.#openedMs = clock.monotonic();
    const onEvent = (path: string): void => {
      for (const name of [path, `${path}/`, parentOf(path)]) paths.get(name)?.hint();
      this.#lookWhenQuiet();
    };
    const onError = (error: unknown): void => this.#warnOnce(FAILED, { error: messageOf(error) });
    this.#events = openEvents(paths, onEvent, onError);
  }

  /** Waits for quiet: editors and deployments write in several steps. */
  #lookWhenQuiet(): void {
    const now = this.#options.clock.monotonic();
    this.#changedMs ??= now;
    this.#lookIn(Math.min(QUIET_MS, Math.max(0, this.#changedMs + MAX_DELAY_MS - now)));
  }

  #lookIn(delayMs: number): void {
    if (this.#closed) return;
    this.#cancelLook?.();
    this.#cancelLook = this.#options.clock.after(delayMs, () => {
      this.#cancelLook = null;
      this.#looks = this.#looks.then(() => this.#look());
    });
  }

  /** Looks at each path once, except on unresponsive drives. A change that was not hinted is reported by the next look. */
  async #look(): Promise<void> {
    const wasChanged = this.#changedMs !== null;
    this.#changedMs = null;
    for (const path of this.#paths.values()) {
      const unresponsive = [...this.#unresponsive];
      if (unresponsive.length >= MAX_UNRESPONSIVE) break;
      if (!unresponsive.some((one) => path.sharesDriveWith(one))) await this.#lookAt(path);
    }
    const differs = [...this.#paths.values()].some((path) => path.differs);
    if (differs && !wasChanged) return this.#lookWhenQuiet();
    if (differs) this.#report();
    if (this.#cancelLook === null) this.#lookIn(Math.max(POLL_MS, PACE_MS * this.#paths.size));
  }

  /** Resolves when the path has been looked at, or when its drive has not responded in time. */
  #lookAt(path: WatchedPath): Promise<void> {
    const { clock, disk = systemDisk, log } = this.#options;
    return new Promise((resolve) => {
      const cancel = clock.after(RESPONSE_TIMEOUT_MS, () => {
        this.#unresponsive.add(path);
        log.warn('A watched file cannot be read in time', { file: path.path });
        resolve();
      });
      void path.look(disk, clock).then(() => {
        cancel();
        resolve();
        if (!this.#unresponsive.delete(path)) return;
        log.info('A watched file can be read again', { file: path.path });
        this.#report();
      });
    });
  }

  #report(): void {
    if (this.#closed) return;
    const { clock, onChange } = this.#options;
    const areEventsDue =
      this.#events?.closed === false && clock.monotonic() - this.#openedMs > POLL_MS;
    for (const path of this.#paths.values()) {
      if (areEventsDue && path.differs && !path.isHinted) this.#warnOnce(UNREPORTED);
      path.markReported();
    }
    this.#reports = this.#reports.then(() =>
      onChange([...this.#unresponsive].map(({ path }) => path)),
    );
  }

  #warnOnce(message: string, fields: LogFields = {}): void {
    if (!this.#warned.has(message)) this.#options.log.warn(message, fields);
    this.#warned.add(message);
  }
}

/** The directory that contains a file, as the watch names it. */
function parentOf(file: string): string {
  return `${dirname(file)}/`;
}

/**
 * Reports possible changes of these paths, and of what is in those that end with `/`, through chokidar, until it is
 * closed or {@link MAX_EVENTS} have come. Some changes are not reported.
 */
function systemEvents(
  wanted: ReadonlyMap<string, Pick<WatchedPath, 'directory'>>,
  onEvent: (path: string) => void,
  onError: (error: unknown) => void,
): Pick<FSWatcher, 'close' | 'closed'> {
  const directories = new Set([...wanted.values()].map(({ directory }) => directory));
  const watcher = watch([...directories], {
    // Watches the directories, not the targets of links in them: replacing a link is an event of its directory.
    depth: 0,
    followSymlinks: false,
    ignoreInitial: true,
    persistent: false,
    // It would delay removals for a moment; the file watcher waits for quiet itself.
    atomic: false,
    ignored: (path) => !directories.has(path) && !wanted.has(path) && !wanted.has(parentOf(path)),
  });
  let left = MAX_EVENTS;
  watcher.on('raw', () => {
    left -= 1;
    if (left === 0) void watcher.close();
  });
  return watcher.on('all', (_, path) => onEvent(path)).on('error', onError);
}
