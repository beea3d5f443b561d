import { chmod, mkdir } from 'node:fs/promises';
import { constants } from 'node:os';
import { join } from 'node:path';
import { type Database, open, type RootDatabase } from 'lmdb';
import type { Evicted } from '../../hub/transport.ts';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import type { Scheduler } from '../../kernel/scheduler.ts';
import { checkPages } from './page-check.ts';
import { processIsEnding, uncut } from '../../kernel/process-end.ts';

/** The log, its ids, its events, its tail; who is subscribed, in lists too, and the processes that say so. */
const MAX_DATABASES = 8;
/** Of what is stored. A store of a later version is left alone. */
const FORMAT = 1;
/** From the first presence event on: versions that know format 1 alone take evicted events for damage. */
const FORMAT_WITH_EVENTS = 2;
const TAIL = 'tail';
const FORMAT_KEY = 'format';
const PROBE_KEY = 'probe';
/** What a disk says that may be well again without anybody changing the configuration. */
const DISK_FAULTS = ['EDQUOT', 'EIO', 'ENOSPC', 'EROFS'] as const;
/** As LMDB says it, and as Node does. */
const diskFaults = new Set<unknown>(DISK_FAULTS.flatMap((name) => [name, constants.errno[name]]));

/** When it was written, and the room that it took. */
interface Probe {
  readonly now: number;
  readonly room: Buffer;
}

/** How far the log has come. */
export interface Tail {
  readonly position: number;
  readonly eventId: string;
  /** How many updates there ever were, presence events not counted. */
  readonly updates: number;
  /** Id of the last of them; empty before the first. */
  readonly updateId: string;
  /** Positions of the newest entries that were evicted. */
  readonly evicted: Evicted;
}

/** Before there were presence events, position and id said all. */
type StoredTail = Pick<Tail, 'position' | 'eventId'> & Partial<Tail>;

/** The databases of a history. */
export interface LmdbStore {
  readonly root: RootDatabase;
  readonly file: string;
  /** Position → update, as `stored-update.ts` has it. */
  readonly log: Database<Buffer, number>;
  /** Id → positions, ascending: an id may be used again. */
  readonly ids: Database<number, string>;
  /** Positions of the presence events in the log. */
  readonly events: Database<boolean, number>;
  readonly tail: { get(): Tail | undefined; put(tail: Tail): void };
  /** Says, inside a transaction, that there are presence events from now on. */
  expectEvents(): void;
  /** Writes so many bytes that mean nothing in the place of those before, inside a transaction. */
  probe(now: number, bytes: number): void;
}

/**
 * Opens the history in a directory; made with mode 0700 when it is missing, its files with 0600. Every
 * page of the file that is in use is checked first.
 *
 * @throws HubgateError `transport-failed`, `history-damaged`, `history-unavailable`, `history-too-new`
 */
export async function openLmdbStore(path: string, scheduler?: Scheduler): Promise<LmdbStore> {
  const file = join(path, 'history.mdb');
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
    await checkPages(file, scheduler);
    const root = open({ path: file, maxDbs: MAX_DATABASES });
    await chmod(file, 0o600);
    await chmod(`${file}-lock`, 0o600);
    try {
      return databasesOf(root, file);
    } catch (error) {
      await root.close();
      throw error;
    }
  } catch (cause) {
    throw openingError(path, cause);
  }
}

function databasesOf(root: RootDatabase, file: string): LmdbStore {
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
    // What came next would be stored in the place of what there is.
    if (newest > position) throw damagedEnd('there are updates after it');
  }
  return {
    root,
    file,
    log,
    ids: root.openDB({ name: 'ids', dupSort: true, encoding: 'ordered-binary' }),
    events: root.openDB({ name: 'events', encoding: 'msgpack' }),
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
    // What is as before might not be written.
    probe: (now, bytes) => meta.putSync(PROBE_KEY, { now, room: Buffer.alloc(bytes) }),
  };
}

/** Without presence events each position is an update, and all before the first one were evicted. */
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
  const said = messageOf(cause);
  if (cause instanceof Error && 'code' in cause && diskFaults.has(cause.code)) {
    return new HubgateError(
      'history-unavailable',
      `The history in ${path} cannot be used because of its disk (${said})`,
      { cause },
    );
  }
  return new HubgateError(
    'transport-failed',
    `The history in ${path} cannot be opened (${said}); is the directory writable, and the disk not full?`,
    { cause },
  );
}

/**
 * Runs `change` in a write transaction, and takes all of it back when it throws or the commit
 * fails. Resolves when it is committed; on disk it is when `root.flushed` has resolved. The process does
 * not end before both.
 *
 * @throws what `change` throws; HubgateError `commit-failed` with what the system said,
 *   `transport-closed` at the end of the process
 */
export async function write<Result>(root: RootDatabase, change: () => Result): Promise<Result> {
  if (processIsEnding()) throw new HubgateError('transport-closed', 'The process is ending');
  // A child transaction: only that is taken back by lmdb-js when its callback throws.
  const written = root.childTransaction(() => {
    // It makes a second promise for the same commit, which nobody else would catch.
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

/** lmdb-js says why a commit failed in a promise that rejects a little later. */
async function reasonOf(error: unknown): Promise<unknown> {
  if (!(error instanceof Error) || !('commitError' in error)) return error;
  try {
    await error.commitError;
    return error;
  } catch (reason) {
    return new HubgateError('commit-failed', messageOf(reason), { cause: reason });
  }
}

function ignore(): void {}
