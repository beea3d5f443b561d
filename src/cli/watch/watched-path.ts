import { createHash } from 'node:crypto';
import { dirname } from 'node:path';
import type { Clock } from '../../kernel/clock.ts';
import type { BigIntStats } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';

/** The coarsest dates of a file system (FAT): what was written within it may have the same date. */
const DATE_MS = 2_000;

/** Nothing is there, or nobody may read it; an editor may be replacing it. */
const ABSENT = '';

/** What is to be known of a path: what is in the file, what the directory lists, or which directory it is. */
export type Interest = 'content' | 'names' | 'identity';

/** A path of which changes are to be told. */
export class WatchedPath {
  readonly path: string;
  readonly interest: Interest;
  /** The drive it is on; a directory stands for it until that is known. */
  device: string;
  /** Which file it is; null for none. */
  identity: string | null = null;
  /** The digest that was last told; null: none yet. */
  #told: string | null = null;
  #found: string | null = null;
  #stamp: string | null = null;
  #stampSeenMs = 0;
  /** Whether another content would have another stamp. */
  #settled = false;

  constructor(path: string, interest: Interest) {
    this.path = path;
    this.interest = interest;
    this.device = dirname(path);
  }

  /** Whether it is another than was last told. */
  get differs(): boolean {
    return this.#found !== this.#told;
  }

  /** What it is now has been told. */
  tell(): void {
    this.#told = this.#found;
  }

  /** Somebody has read this, and knows it. */
  know(digest: string): void {
    this.#told = digest;
    if (this.#found !== digest) this.#stamp = null;
    this.#found = digest;
  }

  /** Reads it if its dates, size or identity have changed. What is seen first is taken as told. */
  async look(disk: WatchDisk, clock: Clock): Promise<void> {
    const stats = await disk.stat(this.path).catch(() => null);
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
    this.#found = stats === null ? ABSENT : await this.#read(disk);
    this.#told ??= this.#found;
  }

  async #read(disk: WatchDisk): Promise<string> {
    try {
      if (this.interest === 'content') return digestOf(await disk.readFile(this.path));
      return digestOfNames(await disk.readdir(this.path));
    } catch {
      return ABSENT;
    }
  }
}

/** @param content null for a file that is not there */
export function digestOf(content: Uint8Array | null): string {
  return content === null ? ABSENT : createHash('sha256').update(content).digest('hex');
}

/** @param names what a directory lists */
export function digestOfNames(names: readonly string[]): string {
  return digestOf(Buffer.from(names.toSorted().join('\0')));
}

function stampOf(stats: Stats | null): string {
  if (stats === null) return ABSENT;
  const { dev, ino, size, mtimeNs, ctimeNs } = stats;
  return [dev, ino, size, mtimeNs, ctimeNs].join();
}

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

/** Paths that are asked for at a time, each of another drive. Node has four threads for this, and other needs. */
const WIDTH = 2;
/** Devices that may owe an answer at a time; each holds a thread. */
const MAX_UNRESPONSIVE = 2;
/** A drive that does not answer within this is left alone until it does. */
const PATIENCE_MS = 2_000;

export interface DevicesOptions {
  readonly clock: Clock;
  readonly ask: (path: WatchedPath) => Promise<void>;
  readonly onUnresponsive: (path: string) => void;
  /** One that was silent has answered. */
  readonly onAnswer: (path: string) => void;
}

/** Asks for paths, drive by drive: one that hangs (a network drive) holds up nothing but itself. */
export class Devices {
  readonly #options: DevicesOptions;
  /** Rounds run one after the other: two would ask the same drive. */
  #round: Promise<void> = Promise.resolve();
  /** What is still owed, by drive. */
  readonly #unresponsive = new Map<string, string>();

  constructor(options: DevicesOptions) {
    this.#options = options;
  }

  /** Paths that were asked for and have not answered in time. */
  get unanswered(): readonly string[] {
    return [...this.#unresponsive.values()];
  }

  /** Asks for each once, but for those of silent drives. */
  ask(paths: readonly WatchedPath[]): Promise<void> {
    this.#round = this.#round.then(() => this.#askAll(paths));
    return this.#round;
  }

  async #askAll(paths: readonly WatchedPath[]): Promise<void> {
    const lanes = new Map<string, WatchedPath[]>();
    for (const path of paths) {
      const lane = lanes.get(path.device);
      if (lane === undefined) lanes.set(path.device, [path]);
      else lane.push(path);
    }
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
      const cancel = clock.after(PATIENCE_MS, () => {
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
