import { randomUUID } from 'node:crypto';
import { rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { type Clock, elapsedSince, type Moment, momentOf } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import { parseJsonObject } from '../kernel/parse.ts';
import type { Logger } from '../kernel/log.ts';
import { createPrivate, namesIn, readIfPresent, writePrivate } from './storage.ts';

interface Holder {
  readonly host: string;
  readonly pid: number;
  /** Identifies one acquisition. */
  readonly owner: string;
  /** Time at which the generation was created, in milliseconds since the epoch. */
  readonly since: number;
  /**
   * Milliseconds since the epoch; 0 if the lock was released. The clocks of machines that share a storage
   * must agree within a few seconds.
   */
  readonly expires: number;
}

/** One file of the lock, with its content. */
interface Generation {
  readonly number: number;
  readonly text: string;
  readonly holder: Holder | null;
  readonly expires: number;
}

/** A holder that has not refreshed the lock for this long counts as gone. */
const LOCK_MS = 60_000;
/** How often a holder refreshes the lock. */
const HEARTBEAT_MS = 15_000;
/** An attempt that takes longer is abandoned, because the files that it has read may be gone by now. */
const MAX_ATTEMPT_MS = LOCK_MS / 2;
/** For how long a generation stays after the next one was created. */
const KEEP_MS = 2 * LOCK_MS;
/** Most old generations that one acquisition removes. */
const MAX_REMOVALS = 8;
/** How often a waiting process checks whether the lock is free. */
const POLL_MS = 100;
/** Time after which a process logs that it waits. */
const ON_WAIT_MS = 500;

/** The file operations of a lock. A test puts pauses between them. */
export interface LockFiles {
  readonly namesIn: typeof namesIn;
  readonly readIfPresent: typeof readIfPresent;
  readonly createPrivate: typeof createPrivate;
  readonly writePrivate: typeof writePrivate;
}

const STORAGE: LockFiles = { namesIn, readIfPresent, createPrivate, writePrivate };

/** What the lock and its holder work with. */
interface LockTools {
  readonly clock: Clock;
  readonly log: Logger;
  readonly files: LockFiles;
}

/**
 * Mutual exclusion of all processes, on all machines, that share a storage. The lock is a directory of
 * numbered files, its generations. The file with the highest number is the valid one. It names the holder,
 * which refreshes it regularly.
 *
 * Why there is one holder at a time:
 * 1. The highest file is never removed, and a lower one is removed no earlier than {@link KEEP_MS} after the
 *    next was created.
 * 2. A contender lists the files, finds the highest one released or expired, and creates the next number
 *    unless it exists. An attempt that takes longer than {@link MAX_ATTEMPT_MS} is abandoned. A file also
 *    counts as expired if the contender has seen no change of it for {@link LOCK_MS}, because the clock of a
 *    holder that is gone may have been ahead.
 * 3. Within that time, no file is removed that was the highest or came later (1). So the number was free when
 *    the attempt began, and exactly one contender gets it.
 * 4. A holder that sees a higher number, or whose time has run out, has lost the lock.
 *    Its time is {@link LOCK_MS} from its last refresh, by the system clock and by the monotonic one.
 */
export class StorageLock {
  readonly #directory: string;
  readonly #tools: LockTools;
  /** The generation that the last attempt has found, and a time after an attempt read it first; monotonic. */
  #seen: { readonly number: number; readonly text: string; readonly atMs: number } | null = null;

  constructor(directory: string, clock: Clock, log: Logger, files: LockFiles = STORAGE) {
    this.#directory = directory;
    this.#tools = { clock, log, files };
  }

  /** Resolves to null while another process holds the lock. */
  async acquire(): Promise<HeldLock | null> {
    const directory = this.#directory;
    const { clock, log, files } = this.#tools;
    const began = momentOf(clock);
    const before = await newest(directory, files);
    if (before !== null && !this.#hasEnded(before, began)) return null;
    const number = (before?.number ?? 0) + 1;
    const holder = {
      host: hostname(),
      pid: process.pid,
      owner: randomUUID(),
      since: began.nowMs,
      expires: began.nowMs + LOCK_MS,
    };
    const path = join(directory, String(number));
    if (!(await files.createPrivate(path, JSON.stringify(holder)))) return null;
    const lock = new HeldLock(directory, number, { holder, since: began, tools: this.#tools });
    await removeSuperseded(directory, began.nowMs, files);
    if (elapsedSince(began, clock) > MAX_ATTEMPT_MS) {
      await lock.release();
      return null;
    }
    if (before?.holder && before.expires > 0) {
      const { host, pid } = before.holder;
      log.warn('A lock was taken over because its holder is gone', { file: directory, host, pid });
    }
    lock.begin();
    return lock;
  }

  #hasEnded({ number, text, expires }: Generation, began: Moment): boolean {
    const seen = this.#seen;
    if (seen?.number !== number || seen.text !== text) {
      this.#seen = { number, text, atMs: this.#tools.clock.monotonic() };
      return expires <= began.nowMs;
    }
    return expires <= began.nowMs || began.monotonicMs - seen.atMs >= LOCK_MS;
  }

  /**
   * Runs a task while holding the lock. The wait for the lock has no limit of its own: it takes as long as
   * the other holders do.
   */
  async during<T>(task: () => Promise<T>): Promise<T> {
    const { clock, log } = this.#tools;
    const lock = await waitFor(
      () => this.acquire(),
      clock,
      () => logHolder(this.#directory, log),
    );
    try {
      return await task();
    } finally {
      await lock.release();
    }
  }
}

/** A lock that this process has acquired. */
export class HeldLock {
  readonly #directory: string;
  readonly #generation: number;
  readonly #tools: LockTools;
  readonly #lost = new AbortController();
  #holder: Holder;
  /** When the holder began to write its present generation. */
  #refreshed: Moment;
  #cancel: () => void = () => {};
  #beating: Promise<void> = Promise.resolve();

  constructor(
    directory: string,
    generation: number,
    acquired: { readonly holder: Holder; readonly since: Moment; readonly tools: LockTools },
  ) {
    this.#directory = directory;
    this.#generation = generation;
    this.#holder = acquired.holder;
    this.#refreshed = acquired.since;
    this.#tools = acquired.tools;
  }

  /**
   * Aborted when another process has taken over the lock, for example after this machine has slept for long.
   */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Never rejects: the task that needed the lock has ended, and a lock that is not released expires. */
  async release(): Promise<void> {
    this.#cancel();
    await this.#beating;
    this.#cancel();
    try {
      if (await this.#isNewest()) await this.#write({ ...this.#holder, expires: 0 });
    } catch (error) {
      this.#warn('A lock could not be released, and is free when it expires', error);
    }
  }

  /** Refreshes the lock regularly from now on. */
  begin(): void {
    this.#cancel = this.#tools.clock.after(HEARTBEAT_MS, () => {
      this.#beating = this.#beat().catch((error: unknown) => {
        this.#warn('A lock could not be renewed', error);
        this.begin();
      });
    });
  }

  #warn(message: string, error: unknown): void {
    this.#tools.log.warn(message, { file: this.#directory, error: messageOf(error) });
  }

  async #beat(): Promise<void> {
    const now = momentOf(this.#tools.clock);
    const inTime = elapsedSince(this.#refreshed, this.#tools.clock) < LOCK_MS;
    if (inTime && (await this.#isNewest())) {
      await this.#write({ ...this.#holder, expires: now.nowMs + LOCK_MS });
      this.#refreshed = now;
      // Another process may have found it expired while it was being written.
      if (await this.#isNewest()) return this.begin();
    }
    this.#lost.abort(new HubgateError('lock-lost', 'Another process has taken over the lock'));
  }

  async #write(holder: Holder): Promise<void> {
    this.#holder = holder;
    await this.#tools.files.writePrivate(
      join(this.#directory, String(this.#generation)),
      JSON.stringify(holder),
    );
  }

  async #isNewest(): Promise<boolean> {
    return (await numbersIn(this.#directory, this.#tools.files)).at(-1) === this.#generation;
  }
}

/** Logs the holder that it waits for. */
async function logHolder(directory: string, log: Logger): Promise<void> {
  const holder = (await newest(directory, STORAGE))?.holder ?? null;
  log.warn('Waiting for a lock of another process; hubgate takes it over if that process is gone', {
    file: directory,
    ...(holder === null
      ? {}
      : {
          host: holder.host,
          pid: holder.pid,
        }),
  });
}

/** Calls `onWait` once, if the wait is longer than a moment. */
async function waitFor<T>(
  attempt: () => Promise<T | null>,
  clock: Clock,
  onWait: () => Promise<void>,
): Promise<T> {
  // The clock's timers do not keep the process alive, and at the start nothing else does.
  const alive = setInterval(() => {}, HEARTBEAT_MS);
  try {
    for (let tries = 1; ; tries += 1) {
      const result = await attempt();
      if (result !== null) return result;
      if (tries * POLL_MS === ON_WAIT_MS) await onWait();
      await new Promise<void>((resolve) => clock.after(POLL_MS, resolve));
    }
  } finally {
    clearInterval(alive);
  }
}

/** The valid generation; null before the first. */
async function newest(directory: string, files: LockFiles): Promise<Generation | null> {
  for (;;) {
    const number = (await numbersIn(directory, files)).at(-1);
    if (number === undefined) return null;
    const path = join(directory, String(number));
    const text = await files.readIfPresent(path);
    // It was superseded and removed in between, so the list is read again.
    if (text === null) continue;
    const holder = holderOf(text);
    return { number, text, holder, expires: holder?.expires ?? (await modified(path)) + LOCK_MS };
  }
}

/** The generations, in ascending order. */
async function numbersIn(directory: string, files: LockFiles): Promise<readonly number[]> {
  const names = await files.namesIn(directory);
  return names
    .filter((name) => /^[1-9]\d*$/.test(name))
    .map(Number)
    .sort((a, b) => a - b);
}

/** Removes the oldest generations whose successors have existed for long enough. */
async function removeSuperseded(directory: string, now: number, files: LockFiles): Promise<void> {
  const numbers = await numbersIn(directory, files);
  for (const [index, number] of numbers.slice(0, MAX_REMOVALS).entries()) {
    const next = numbers[index + 1];
    if (next === undefined) return;
    const successor = holderOf((await files.readIfPresent(join(directory, String(next)))) ?? '');
    if (successor === null || now - successor.since < KEEP_MS) return;
    await rm(join(directory, String(number)), { force: true });
  }
}

async function modified(file: string): Promise<number> {
  try {
    return (await stat(file)).mtimeMs;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return 0;
    throw error;
  }
}

/** Returns null if the text is not a complete lock. */
function holderOf(text: string): Holder | null {
  const { host, pid, owner, since, expires } = parseJsonObject(text) ?? {};
  if (typeof owner !== 'string' || typeof expires !== 'number') return null;
  if (typeof since !== 'number') return null;
  return { host: String(host), pid: Number(pid), owner, since, expires };
}
