import { randomBytes } from 'node:crypto';
import { existsSync, statSync, watch } from 'node:fs';
import { chmod, link, rm, stat, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { type Database, open, type RootDatabase } from 'lmdb';
import { whyUnusable } from '../../config/problem.ts';
import type { Evicted } from '../../hub/transport.ts';
import type { Clock } from '../../kernel/clock.ts';
import { codeOf, HubgateError, ignore, messageOf } from '../../kernel/error.ts';
import { makeDirectory } from '../../kernel/files.ts';
import { LeasePool } from '../../kernel/lease.ts';
import type { Logger } from '../../kernel/log.ts';
import type { Scheduler } from '../../kernel/scheduler.ts';
import { processIsEnding, uncut } from '../../kernel/process-end.ts';
import { checkPages } from './page-check.ts';

/**
 * The history, its ids, its events, its tail; the subscribers, their lists, their announcements, and the
 * leases of their processes.
 */
const MAX_DATABASES = 8;
/** Version of the stored format. A store with a later version is not touched. */
const FORMAT = 1;
/**
 * Used from the first presence event on, because code that knows only format 1 treats evicted events as
 * damage.
 */
const FORMAT_WITH_EVENTS = 2;
const TAIL = 'tail';
const FORMAT_KEY = 'format';
/** LMDB needs half of it and uses what it finds, with a slot for one more reader in each 64 bytes. */
const LOCK_BYTES = 16 * 1024;
/** Of a new history: its meta pages, and those of its databases. */
const FIRST_BYTES = 128 * 1024;
const PROBE_KEY = 'probe';
/** Errors of a disk that may disappear without a change of the configuration. */
const DISK_FAULTS = ['EDQUOT', 'EIO', 'ENOSPC', 'EROFS'] as const;
/** The codes of LMDB and those of Node. */
const diskFaults = new Set<unknown>(DISK_FAULTS.flatMap((name) => [name, constants.errno[name]]));

/** How often the history is checked for entries of other processes, if the file cannot be watched. */
const POLL_MS = 100;
/**
 * Times after a change of the file at which the history is checked again. The system reports the write of a commit a
 * moment before other processes can see it, and that moment is long if the writer has to wait for a processor.
 */
const LOOK_AGAIN_MS: readonly number[] = [20, 200, 1_000];

/** The time of the write, and the space that it used. */
interface Probe {
  readonly now: number;
  readonly room: Buffer;
}

/** The end of the history. */
export interface Tail {
  readonly position: number;
  readonly eventId: string;
  /** The number of updates ever stored, without presence events. */
  readonly updates: number;
  /** Id of the last update; empty before the first. */
  readonly updateId: string;
  /** Positions of the newest evicted entries. */
  readonly evicted: Evicted;
}

/** Before there were presence events, position and id were sufficient. */
type StoredTail = Pick<Tail, 'position' | 'eventId'> & Partial<Tail>;

/** A subscriber of a process that shares the history. */
export type SubscriberKey = [process: string, subscriber: string];

/** A subscriber on the board. */
export interface SubscriberEntry {
  /** Milliseconds since the Unix epoch, and a number that orders entries of the same millisecond. */
  readonly since: number;
  readonly order: number;
  /** JSON, so that a payload is returned exactly as it was. */
  readonly records: string;
}

/** A change of a subscriber that is to be announced, usually its removal. */
export interface ClaimedChange {
  readonly departure: string;
  readonly active?: boolean;
  readonly records: string;
  /** Until then, the process that has claimed the announcement publishes it. */
  readonly claimedUntil: number;
}

/**
 * Key of an entry in the list of a matcher, identified by its digest, or '' for the list of all subscribers;
 * ordered by arrival.
 */
export type ListPlace = [
  list: string,
  since: number,
  order: number,
  process: string,
  subscriber: string,
];

/** The databases of the presence board. */
export interface PresenceDatabases {
  readonly entries: Database<SubscriberEntry, SubscriberKey>;
  /** The lists; the key contains everything. */
  readonly lists: Database<boolean, ListPlace>;
  /** Subscribers whose arrival or departure a process has claimed to announce. */
  readonly departed: Database<ClaimedChange, SubscriberKey>;
  /** Process → expiry of its lease. */
  readonly leases: Database<number, string>;
}

/** The databases of a history. */
interface LmdbDatabases {
  readonly root: RootDatabase;
  readonly file: string;
  /** Position → update, encoded by `stored-history.ts`. */
  readonly log: Database<Buffer, number>;
  /** Id → positions, ascending, because an id can be used again. */
  readonly ids: Database<number, string>;
  /** Positions of the presence events in the history. */
  readonly events: Database<boolean, number>;
  readonly presence: PresenceDatabases;
  readonly tail: { get(): Tail | undefined; put(tail: Tail): void };
  /** Records, inside a transaction, that there are presence events from now on. */
  expectEvents(): void;
  /** Whether the path still leads to the open file. Somebody may have moved, deleted or replaced it. */
  isInPlace(): boolean;
  /** Replaces the previous filler with this many bytes, inside a transaction, to test writing. */
  probe(now: number, bytes: number): void;
}

/** A claim on the databases of a history. */
export interface LmdbStore extends LmdbDatabases {
  /** Gives the claim back. The last one in this process closes the databases; their writes are committed then. */
  close(): Promise<void>;
}

/**
 * The histories that this process has open. All that open one history share its databases. Opening a database
 * of LMDB is a write transaction in which the main thread waits for the writer before it. If that is another
 * instance of lmdb-js in this process, it waits for a callback in the main thread, and both wait for ever.
 */
const openHistories = new LeasePool<LmdbDatabases>(({ root }) => root.close(), { overlap: false });

/**
 * Opens the history in a directory. A missing directory is created with mode 0700, its files with 0600.
 * First, every page of the file that is in use is checked.
 *
 * @throws HubgateError `transport-failed`, `history-damaged`, `history-unavailable`, `history-too-new`
 */
export async function openLmdbStore(path: string, scheduler?: Scheduler): Promise<LmdbStore> {
  try {
    makeDirectory(path);
    const { dev, ino } = await stat(path, { bigint: true });
    const file = join(path, 'history.mdb');
    await checkPages(file, scheduler);
    const { value, release } = await openHistories.acquire(`${dev}:${ino}`, () =>
      openDatabases(file),
    );
    return { ...value, close: release };
  } catch (cause) {
    throw openingError(path, cause);
  }
}

async function openDatabases(file: string): Promise<LmdbDatabases> {
  await allocateLock(`${file}-lock`);
  await requireRoom(file);
  const root = open({ path: file, maxDbs: MAX_DATABASES });
  await chmod(file, 0o600);
  await chmod(`${file}-lock`, 0o600);
  try {
    return databasesOf(root, file);
  } catch (error) {
    await root.close();
    throw error;
  }
}

/**
 * Creates a missing lock file with all its blocks. LMDB would create a file of holes and fill them through a memory
 * map, and on a full disk the system ends a process that does so with SIGBUS.
 *
 * @throws the system's error, for instance ENOSPC
 */
async function allocateLock(lock: string): Promise<void> {
  if (existsSync(lock)) return;
  const temporary = `${lock}.${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(temporary, Buffer.alloc(LOCK_BYTES), { mode: 0o600, flag: 'wx' });
    // Another process may have created it meanwhile. Where there are no hard links, LMDB creates it.
    await link(temporary, lock).catch(ignore);
  } finally {
    await rm(temporary, { force: true });
  }
}

/**
 * Checks that there is room for the first pages of a new file. Where there is none, LMDB ends the process with SIGSEGV.
 *
 * @throws the system's error, for instance ENOSPC
 */
async function requireRoom(file: string): Promise<void> {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size > 0) return;
  const temporary = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(temporary, Buffer.alloc(FIRST_BYTES), { mode: 0o600, flag: 'wx' });
  } finally {
    await rm(temporary, { force: true });
  }
}

function databasesOf(root: RootDatabase, file: string): LmdbDatabases {
  const meta = root.openDB<StoredTail | Probe | number, string>({
    name: 'meta',
    encoding: 'msgpack',
  });
  const format = readable(() => meta.get(FORMAT_KEY));
  if (format === undefined) {
    if (meta.get(TAIL) !== undefined) {
      const message = 'it was written before hubgate 0.1.0 was released; move it away';
      throw new HubgateError('history-damaged', message);
    }
    meta.putSync(FORMAT_KEY, FORMAT);
  } else if (typeof format !== 'number' || format > FORMAT_WITH_EVENTS) {
    const message =
      'it was written by a later version of hubgate; run that one, or export it there';
    throw new HubgateError('history-too-new', message);
  }
  const log = root.openDB<Buffer, number>({ name: 'log', encoding: 'binary' });
  const end = readable(() => meta.get(TAIL));
  const position = typeof end === 'object' && 'position' in end ? end.position : 0;
  for (const newest of log.getKeys({ limit: 1, reverse: true })) {
    // The next update would overwrite an existing one.
    if (newest > position) throw damagedEnd('there are updates after it');
  }
  return {
    root,
    file,
    log,
    ids: root.openDB({ name: 'ids', dupSort: true, encoding: 'ordered-binary' }),
    events: root.openDB({ name: 'events', encoding: 'msgpack' }),
    presence: presenceDatabases(root),
    tail: {
      get() {
        const tail = readable(() => meta.get(TAIL));
        return typeof tail === 'object' && 'position' in tail ? wholeTail(tail, log) : undefined;
      },
      put: (tail) => meta.putSync(TAIL, tail),
    },
    expectEvents() {
      if (meta.get(FORMAT_KEY) === FORMAT) meta.putSync(FORMAT_KEY, FORMAT_WITH_EVENTS);
    },
    isInPlace: inPlace(file),
    // An unchanged value might not be written.
    probe: (now, bytes) => meta.putSync(PROBE_KEY, { now, room: Buffer.alloc(bytes) }),
  };
}

function inPlace(file: string): () => boolean {
  const options = { bigint: true, throwIfNoEntry: false } as const;
  const opened = statSync(file, options);
  return () => {
    try {
      const found = statSync(file, options);
      return found?.ino === opened?.ino && found?.dev === opened?.dev;
    } catch {
      // The directory may have become unreadable, which changes nothing for the open file.
      return true;
    }
  };
}

export function presenceDatabases(root: RootDatabase): PresenceDatabases {
  return {
    entries: root.openDB({ name: 'presence', encoding: 'msgpack' }),
    lists: root.openDB({ name: 'presence-lists', encoding: 'msgpack' }),
    departed: root.openDB({ name: 'presence-departed', encoding: 'msgpack' }),
    leases: root.openDB({ name: 'processes', encoding: 'msgpack' }),
  };
}

/**
 * Without presence events, each position is an update, and all positions before the first one were evicted.
 */
function wholeTail(tail: StoredTail, log: Database<Buffer, number>): Tail {
  const { position, eventId, updates = position, updateId = eventId, evicted } = tail;
  if (evicted !== undefined) return { position, eventId, updates, updateId, evicted };
  let oldest = position + 1;
  for (const key of log.getKeys({ limit: 1 })) oldest = key;
  return { position, eventId, updates, updateId, evicted: { updates: oldest - 1, events: 0 } };
}

function readable<Value>(read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    throw damagedEnd(messageOf(error));
  }
}

function damagedEnd(said: string): HubgateError {
  return new HubgateError(
    'history-damaged',
    `the end mark of history.mdb is damaged (${said}). Move it and history.mdb-lock away, then import a ` +
      'backup: hubgate history import',
  );
}

function openingError(path: string, cause: unknown): HubgateError {
  if (cause instanceof HubgateError) {
    return new HubgateError(cause.code, `The history in ${path} is not used: ${cause.message}`);
  }
  const said = whyUnusable(cause);
  if (cause instanceof Error && 'code' in cause && diskFaults.has(cause.code)) {
    return new HubgateError(
      'history-unavailable',
      `The history in ${path} cannot be used because of its disk (${said})`,
      { cause },
    );
  }
  const isFile = ['EEXIST', 'ENOTDIR'].includes(codeOf(cause) ?? '');
  const advice = isFile
    ? 'is it, or a directory above it, a file?'
    : 'is the directory writable, and the disk not full?';
  return new HubgateError(
    'transport-failed',
    `The history in ${path} cannot be opened (${said}); ${advice}`,
    { cause },
  );
}

/**
 * Runs `change` in a write transaction, and rolls it back if it throws or the commit fails. Resolves when it
 * is committed; it is on disk when `root.flushed` has resolved. The process does not end before both.
 *
 * @throws any error of `change`; HubgateError `commit-failed` with the system's message, `transport-closed`
 * at the end of the process
 */
export async function write<Result>(root: RootDatabase, change: () => Result): Promise<Result> {
  if (processIsEnding()) throw new HubgateError('transport-closed', 'The process is ending');
  // A child transaction, because lmdb-js rolls back only such a one when its callback throws.
  const written = root.childTransaction(() => {
    // This creates a second promise for the same commit, which nothing else would catch.
    root.committed.then(ignore, ignore);
    return change();
  });
  void uncut(async () => {
    await written;
    await root.flushed;
  }).catch(ignore);
  try {
    return await written;
  } catch (error) {
    throw await reasonOf(error);
  }
}

/** lmdb-js reports the reason of a failed commit in a promise that rejects a little later. */
async function reasonOf(error: unknown): Promise<unknown> {
  if (!(error instanceof Error) || !('commitError' in error)) return error;
  try {
    await error.commitError;
    return error;
  } catch (reason) {
    return new HubgateError('commit-failed', messageOf(reason), { cause: reason });
  }
}

/** Reports the commits of all processes. Each one changes the file, so no polling is needed where it can be watched. */
export class StoreWatch {
  readonly #file: string;
  readonly #wake: () => void;
  readonly #clock: Clock;
  readonly #log: Logger;
  /** How often the history was checked again since the last change of the file. */
  #looks = 0;
  #isStopped = false;
  #stopLooking: () => void = () => {};
  #stopWatching: () => void = () => {};

  /** @param wake called when there may be new entries */
  constructor(file: string, wake: () => void, { clock, log }: { clock: Clock; log: Logger }) {
    this.#file = file;
    this.#wake = wake;
    this.#clock = clock;
    this.#log = log;
  }

  start(): void {
    this.stop();
    this.#isStopped = false;
    try {
      const watcher = watch(this.#file, { persistent: false }, () => {
        this.#looks = 0;
        this.#look();
      });
      // The directory may be moved away. The open file stays usable, and peer workers still send wake-ups.
      watcher.on('error', () => this.#poll());
      this.#stopWatching = () => watcher.close();
    } catch (error) {
      this.#log.debug('The history cannot be watched; hubgate polls it', {
        reason: codeOf(error) ?? messageOf(error),
      });
      this.#poll();
    }
  }

  stop(): void {
    this.#isStopped = true;
    this.#stopWatching();
    this.#stopLooking();
  }

  #look(): void {
    this.#stopLooking();
    const delayMs = LOOK_AGAIN_MS[this.#looks];
    this.#looks += 1;
    if (delayMs !== undefined) this.#stopLooking = this.#clock.after(delayMs, () => this.#look());
    this.#wake();
  }

  #poll(): void {
    if (this.#isStopped) return;
    this.#stopWatching = this.#clock.after(POLL_MS, () => {
      this.#poll();
      this.#wake();
    });
  }
}
