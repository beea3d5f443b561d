import { rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isPossibleId } from '../../hub/update.ts';
import { codeOf, HubgateError, messageOf } from '../../kernel/error.ts';
import type { History, DatedUpdate, HistoryFault, HistoryStats } from '../history.ts';
import { type LmdbStore, openLmdbStore, write } from './lmdb-store.ts';
import {
  addEntries,
  isEvicted,
  decodeStored,
  storedHead,
  type StoredHead,
} from './stored-history.ts';

/** Entries read in one turn of the event loop. */
const AT_ONCE = 256;

/**
 * Opens a history for its operator. A gateway may be using it.
 *
 * @throws HubgateError `history-not-found`; otherwise as {@link openLmdbStore}
 */
export async function openLmdbHistory(path: string, { create = false } = {}): Promise<History> {
  if (!create) await requireHistory(path);
  return new LmdbHistory(path, await openLmdbStore(path));
}

async function requireHistory(path: string): Promise<void> {
  try {
    await stat(join(path, 'history.mdb'));
  } catch (cause) {
    const message =
      codeOf(cause) === 'EACCES'
        ? `The history in ${path} cannot be read: this user has no right to; run the command as the user of the gateway`
        : `The history in ${path} was not found; run the command in the gateway's working directory, or make the path of the storage absolute`;
    throw new HubgateError('history-not-found', message, { cause });
  }
}

interface StoredBytes {
  readonly position: number;
  readonly bytes: Buffer;
  /** Position of the oldest presence event in the same snapshot; null if there is none. */
  readonly oldestEvent: number | null;
}

class LmdbHistory implements History {
  readonly #path: string;
  readonly #store: LmdbStore;

  constructor(path: string, store: LmdbStore) {
    this.#path = path;
    this.#store = store;
  }

  async stats(): Promise<HistoryStats> {
    const { log, events, tail, file } = this.#store;
    const [oldest] = log.getRange({ limit: 1 });
    const [newest] = log.getRange({ limit: 1, reverse: true });
    const end = tail.get();
    return {
      updates: log.getKeysCount() - events.getKeysCount(),
      events: events.getKeysCount(),
      position: end?.position ?? 0,
      lastEventId: end?.eventId ?? null,
      oldestAt: oldest === undefined ? null : storedHead(oldest.value, oldest.key).at,
      newestAt: newest === undefined ? null : storedHead(newest.value, newest.key).at,
      bytes: (await stat(file)).size,
    };
  }

  async *entries(): AsyncIterable<readonly DatedUpdate[]> {
    for await (const page of this.#pages()) {
      yield page.map(({ position, bytes }) => {
        try {
          return decodeStored(bytes);
        } catch (cause) {
          const message = `The update at position ${position} cannot be read: ${messageOf(cause)}`;
          throw new HubgateError('history-damaged', message, { cause });
        }
      });
    }
  }

  async add(entries: readonly DatedUpdate[]): Promise<void> {
    const { root } = this.#store;
    await write(root, () => addEntries(this.#store, entries));
    await root.flushed;
  }

  async verify(progress: (checked: number) => void): Promise<readonly HistoryFault[]> {
    const { ids } = this.#store;
    const faults: HistoryFault[] = [];
    const end = this.#store.tail.get()?.position ?? 0;
    let checked = 0;
    let last = 0;
    let before: StoredHead | null = null;
    for await (const page of this.#pages()) {
      for (const { position, bytes, oldestEvent } of page) {
        const head = storedHead(bytes, position);
        if (position > last + 1 && !isEvicted({ position, head }, before, oldestEvent)) {
          faults.push(missing(last + 1, position - 1));
        }
        last = position;
        before = head;
        const fault = faultOf(bytes, (id) => ids.doesExist(id, position));
        if (fault !== null) faults.push({ position, message: fault });
      }
      checked += page.length;
      progress(checked);
    }
    // The newest entry is never evicted.
    if (last < end) faults.push(missing(last + 1, end));
    return faults;
  }

  async compact(): Promise<{ readonly beforeBytes: number; readonly afterBytes: number }> {
    const { root, file } = this.#store;
    const others = processesOf(root.readerList()).filter((pid) => pid !== process.pid);
    if (others.length > 0) {
      const message = `The history in ${this.#path} is in use by process ${others.join(', ')}; stop the gateway first`;
      throw new HubgateError('history-in-use', message);
    }
    const beforeBytes = (await stat(file)).size;
    const copy = join(this.#path, 'compacted.mdb');
    await rm(copy, { force: true });
    await root.backup(copy, true);
    await this.#store.close();
    await rename(copy, file);
    return { beforeBytes, afterBytes: (await stat(file)).size };
  }

  async close(): Promise<void> {
    await this.#store.close();
  }

  /** A single snapshot, however long reading takes and whatever is added or evicted in the meantime. */
  async *#pages(): AsyncIterable<readonly StoredBytes[]> {
    const { root, log, events } = this.#store;
    const transaction = root.useReadTransaction();
    try {
      let oldestEvent: number | null = null;
      for (const key of events.getKeys({ limit: 1, transaction })) oldestEvent = key;
      for (let from = 0; ; ) {
        const range = log.getRange({ start: from, limit: AT_ONCE, transaction });
        const page = Array.from(range, ({ key, value }) => ({
          position: key,
          bytes: value,
          oldestEvent,
        }));
        const last = page.at(-1);
        if (last === undefined) return;
        yield page;
        from = last.position + 1;
        await new Promise<void>((resolve) => setImmediate(resolve));
      }
    } finally {
      transaction.done();
    }
  }
}

/** Positions have no gaps. */
function missing(from: number, to: number): HistoryFault {
  const message = from === to ? 'it is missing' : `it and all updates up to ${to} are missing`;
  return { position: from, message };
}

function faultOf(bytes: Buffer, isIndexed: (id: string) => boolean): string | null {
  try {
    const { id } = decodeStored(bytes).update;
    return !isPossibleId(id) || isIndexed(id) ? null : 'its id is not in the index';
  } catch (error) {
    return messageOf(error);
  }
}

/** LMDB lists its readers as lines of process, thread and transaction. */
function processesOf(readers: string): number[] {
  const found = [...readers.matchAll(/^\s*(\d+)\s/gm)].map(([, pid]) => Number(pid));
  return [...new Set(found)];
}
