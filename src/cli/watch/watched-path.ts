import { hash } from 'node:crypto';
import { dirname } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import { addToList } from '../../kernel/collections.ts';
import { codeOf } from '../../kernel/error.ts';
import type { BigIntStats } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';

/** Resolution of the coarsest file dates (FAT). Writes within this time may have the same date. */
const DATE_MS = 2_000;

/** The file does not exist or cannot be read; an editor may be replacing it. */
const ABSENT = '';

/**
 * What the watch compares: the content of a file, the names in a directory, or the identity of a directory.
 */
export type Interest = 'content' | 'names' | 'identity';

/** A path whose changes are reported. */
export class WatchedPath {
  readonly path: string;
  readonly interest: Interest;
  /** Its drive; the directory takes its place until the drive is known. */
  device: string;
  /** Identity of the file; null if it does not exist. */
  identity: string | null = null;
  /** The digest that was last reported; null if there is none yet. */
  #reported: string | null = null;
  #found: string | null = null;
  #stamp: string | null = null;
  #stampSeenMs = 0;
  /** Whether different content would have a different stamp. */
  #settled = false;

  constructor(path: string, interest: Interest) {
    this.path = path;
    this.interest = interest;
    this.device = dirname(path);
  }

  /** Whether the current digest differs from the reported one. */
  get differs(): boolean {
    return this.#found !== this.#reported;
  }

  /** Marks the current digest as reported. */
  markReported(): void {
    this.#reported = this.#found;
  }

  /** Records a digest that the caller has read and knows. */
  know(digest: string): void {
    this.#reported = digest;
    if (this.#found !== digest) this.#stamp = null;
    this.#found = digest;
  }

  /** Reads it if its dates, size or identity have changed. The first digest counts as reported. */
  async look(disk: WatchDisk, clock: Clock): Promise<void> {
    const stats = await disk.stat(this.path).catch(absentOrUnknown);
    if (stats === undefined) return;
    if (stats !== null) this.device = String(stats.dev);
    this.identity = stats === null ? null : `${stats.dev}:${stats.ino}`;
    if (this.interest === 'identity') return;
    const now = clock.monotonic();
    const stamp = stampOf(stats);
    if (stamp !== this.#stamp) {
      this.#stamp = stamp;
      this.#stampSeenMs = now;
    } else if (this.#settled) return;
    const age = Math.max(
      now - this.#stampSeenMs,
      stats === null ? DATE_MS : clock.now() - Number(stats.mtimeMs),
    );
    this.#settled = age >= DATE_MS;
    const found = stats === null ? ABSENT : await this.#read(disk);
    if (found === null) {
      // It is read again the next time.
      this.#settled = false;
      return;
    }
    this.#found = found;
    this.#reported ??= found;
  }

  /** null if it is unknown. */
  async #read(disk: WatchDisk): Promise<string | null> {
    try {
      if (this.interest === 'content') return digestOf(await disk.readFile(this.path));
      return digestOfNames(await disk.readdir(this.path));
    } catch (error) {
      return absentOrUnknown(error) === null ? ABSENT : null;
    }
  }
}

/** @param content null for a file that does not exist */
export function digestOf(content: Uint8Array | null): string {
  return content === null ? ABSENT : hash('sha256', content, 'hex');
}

/** @param names the names in a directory */
export function digestOfNames(names: readonly string[]): string {
  return digestOf(Buffer.from(names.toSorted().join('\0')));
}

/** A lack of descriptors or of memory, or a failing disk, may pass. They say nothing about the path. */
const PASSING: ReadonlySet<string | undefined> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EIO']);

function absentOrUnknown(error: unknown): null | undefined {
  return PASSING.has(codeOf(error)) ? undefined : null;
}

function stampOf(stats: Stats | null): string {
  if (stats === null) return ABSENT;
  const { dev, ino, size, mtimeNs, ctimeNs } = stats;
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

/**
 * Paths that are checked at the same time, each on another drive. Node has four threads for this, which are
 * also needed elsewhere.
 */
const WIDTH = 2;
/** Devices that may be unresponsive at the same time; each occupies a thread. */
const MAX_UNRESPONSIVE = 2;
/** A drive that does not respond in this time is left alone until it does. */
const RESPONSE_TIMEOUT_MS = 2_000;

export interface DevicesOptions {
  readonly clock: Clock;
  readonly ask: (path: WatchedPath) => Promise<void>;
  readonly onUnresponsive: (path: string) => void;
  /** Called when an unresponsive drive has responded. */
  readonly onAnswer: (path: string) => void;
}

/** Checks paths, drive by drive: a drive that hangs (a network drive) delays only itself. */
export class Devices {
  readonly #options: DevicesOptions;
  /** Rounds run one after the other. Two at a time would access the same drive. */
  #round: Promise<void> = Promise.resolve();
  /** The pending path of each unresponsive drive. */
  readonly #unresponsive = new Map<string, string>();

  constructor(options: DevicesOptions) {
    this.#options = options;
  }

  /** Paths that were checked and have not responded in time. */
  get unanswered(): readonly string[] {
    return [...this.#unresponsive.values()];
  }

  /** Checks each path once, except on unresponsive drives. */
  ask(paths: readonly WatchedPath[]): Promise<void> {
    this.#round = this.#round.then(() => this.#askAll(paths));
    return this.#round;
  }

  async #askAll(paths: readonly WatchedPath[]): Promise<void> {
    const lanes = new Map<string, WatchedPath[]>();
    for (const path of paths) addToList(lanes, path.device, path);
    const waiting = [...lanes].filter(([device]) => !this.#unresponsive.has(device));
    const worker = async (): Promise<void> => {
      while (this.#unresponsive.size < MAX_UNRESPONSIVE) {
        const lane = waiting.shift();
        if (lane === undefined) return;
        await this.#askLane(...lane);
      }
    };
    await Promise.all(Array.from({ length: WIDTH }, worker));
  }

  async #askLane(device: string, paths: readonly WatchedPath[]): Promise<void> {
    for (const path of paths) if (!(await this.#answers(device, path))) return;
  }

  #answers(device: string, path: WatchedPath): Promise<boolean> {
    const { clock, ask, onUnresponsive, onAnswer } = this.#options;
    return new Promise((resolve) => {
      const cancel = clock.after(RESPONSE_TIMEOUT_MS, () => {
        this.#unresponsive.set(device, path.path);
        onUnresponsive(path.path);
        resolve(false);
      });
      void ask(path).then(() => {
        cancel();
        resolve(true);
        if (this.#unresponsive.get(device) !== path.path) return;
        this.#unresponsive.delete(device);
        onAnswer(path.path);
      });
    });
  }
}
