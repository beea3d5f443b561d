import { randomUUID } from 'node:crypto';
import { link, rename, rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import { createPrivate, readIfPresent, writePrivate } from './storage.ts';

interface Holder {
  readonly host: string;
  readonly pid: number;
  /** Of one acquisition. */
  readonly owner: string;
  /** Milliseconds since the epoch; the clocks of machines that share a storage agree to some seconds. */
  readonly expires: number;
}

/** A holder that has not been heard of for this long is gone. */
const LOCK_MS = 60_000;
/** How often a holder is heard of. */
const HEARTBEAT_MS = 15_000;
/** How often who waits looks whether the lock is free. */
const POLL_MS = 100;
/** After how long it says that it waits. */
const TELL_MS = 500;

/**
 * Mutual exclusion of all processes, on all machines, that share a storage: a file that only one of
 * them can create, and that its holder keeps fresh. A lock whose holder is gone is taken over.
 */
export class StorageLock {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #lost = new AbortController();
  #holder: Holder;
  #cancel: () => void = () => {};
  #beating: Promise<void> = Promise.resolve();

  private constructor(file: string, holder: Holder, clock: Clock, log: Logger) {
    this.#file = file;
    this.#holder = holder;
    this.#clock = clock;
    this.#log = log;
    this.#beatLater();
  }

  /** null while another has it. */
  static async acquire(file: string, clock: Clock, log: Logger): Promise<StorageLock | null> {
    const owner = randomUUID();
    const holder = { host: hostname(), pid: process.pid, owner, expires: clock.now() + LOCK_MS };
    const create = (): Promise<boolean> => createPrivate(file, JSON.stringify(holder));
    if (await create()) return new StorageLock(file, holder, clock, log);
    if (!(await removeStale(file, clock, log)) || !(await create())) return null;
    return new StorageLock(file, holder, clock, log);
  }

  /** Runs a task when nobody else does; the wait is as long as the others'. */
  static async during<T>(
    file: string,
    clock: Clock,
    log: Logger,
    task: () => Promise<T>,
  ): Promise<T> {
    const lock = await waitFor(
      () => StorageLock.acquire(file, clock, log),
      clock,
      () => tellHolder(file, log),
    );
    try {
      return await task();
    } finally {
      await lock.release();
    }
  }

  /** Aborted when another has taken the lock over, as after a long sleep of this machine. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  async release(): Promise<void> {
    this.#cancel();
    await this.#beating;
    this.#cancel();
    if (await this.#held()) await rm(this.#file, { force: true });
  }

  #beatLater(): void {
    this.#cancel = this.#clock.after(HEARTBEAT_MS, () => {
      this.#beating = this.#beat().catch((error: unknown) => {
        this.#log.warn('A lock could not be refreshed', {
          file: this.#file,
          error: messageOf(error),
        });
        this.#beatLater();
      });
    });
  }

  async #beat(): Promise<void> {
    // Past its end another may be about to take it over: writing could destroy the other's lock.
    if (this.#clock.now() >= this.#holder.expires || !(await this.#held())) {
      this.#lost.abort(new HubgateError('lock-lost', 'Another process has taken over'));
      return;
    }
    this.#holder = { ...this.#holder, expires: this.#clock.now() + LOCK_MS };
    await writePrivate(this.#file, JSON.stringify(this.#holder));
    this.#beatLater();
  }

  async #held(): Promise<boolean> {
    const text = await readIfPresent(this.#file);
    return text !== null && holderOf(text)?.owner === this.#holder.owner;
  }
}

/** Says who is waited for. */
async function tellHolder(file: string, log: Logger): Promise<void> {
  const holder = holderOf((await readIfPresent(file)) ?? '');
  log.warn('Waiting for a lock that another process has; it is taken over when that one is gone', {
    file,
    ...(holder === null
      ? {}
      : {
          host: holder.host,
          pid: holder.pid,
          until: new Date(holder.expires).toISOString(),
        }),
  });
}

/** `tell` is called once, when the wait is longer than a moment. */
async function waitFor<T>(
  attempt: () => Promise<T | null>,
  clock: Clock,
  tell: () => Promise<void>,
): Promise<T> {
  // The clock's timers keep no process alive, and at the start nothing else does.
  const alive = setInterval(() => {}, HEARTBEAT_MS);
  try {
    for (let tries = 1; ; tries += 1) {
      const result = await attempt();
      if (result !== null) return result;
      if (tries * POLL_MS === TELL_MS) await tell();
      await new Promise<void>((resolve) => clock.after(POLL_MS, resolve));
    }
  } finally {
    clearInterval(alive);
  }
}

/** Removes a lock whose holder is gone; false when somebody holds it. */
async function removeStale(file: string, clock: Clock, log: Logger): Promise<boolean> {
  const seen = await readIfPresent(file);
  if (seen === null) return true;
  const holder = holderOf(seen);
  const expires = holder?.expires ?? (await modified(file)) + LOCK_MS;
  if (clock.now() < expires) return false;
  // Two may see the same stale lock. Only one can move it away, and who has moved away a fresh one
  // instead, because the other was faster, puts it back.
  const aside = `${file}.${randomUUID()}`;
  try {
    await rename(file, aside);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return true;
    throw error;
  }
  try {
    if ((await readIfPresent(aside)) !== seen) {
      await putBack(aside, file);
      return false;
    }
    log.warn('A lock was taken over whose holder is gone', {
      file,
      host: holder?.host,
      pid: holder?.pid,
    });
    return true;
  } finally {
    await rm(aside, { force: true });
  }
}

async function putBack(aside: string, file: string): Promise<void> {
  try {
    await link(aside, file);
  } catch (error) {
    // A third has made a lock meanwhile: the holder of this one finds out at its next heartbeat.
    if (codeOf(error) !== 'EEXIST') throw error;
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

/** null for a text that is no lock, or only the beginning of one. */
function holderOf(text: string): Holder | null {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null) return null;
    const { host, pid, owner, expires } = value as Partial<Record<keyof Holder, unknown>>;
    if (typeof owner !== 'string' || typeof expires !== 'number') return null;
    return { host: String(host), pid: Number(pid), owner, expires };
  } catch {
    return null;
  }
}
