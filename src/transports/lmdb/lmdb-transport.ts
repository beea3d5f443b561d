import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type Database, open, type RootDatabase } from 'lmdb';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import type { LogEntry, Transport } from '../../hub/transport.ts';
import type { Update } from '../../hub/update.ts';
import { LmdbPresence } from './lmdb-presence.ts';

export interface LmdbTransportOptions {
  /** Directory of the history; made with mode 0700 when it is missing. */
  readonly path: string;
  /** Updates kept; 0 keeps all. */
  readonly size: number;
  /** Milliseconds that an update is kept; 0 keeps it for ever. */
  readonly maxAgeMs: number;
  /** `commit`: an acknowledged update is on disk. `async`: the disk follows soon after. */
  readonly durability: 'commit' | 'async';
  /** Told when an update was added, so that others who share the history can be woken. */
  readonly appended?: () => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** What the log's database holds: the update and when it was accepted. */
interface StoredUpdate extends Update {
  readonly at: number;
}

interface Tail {
  readonly position: number;
  readonly eventId: string;
}

/** How often the log is asked for what other processes have added to it, if nobody wakes this one. */
const POLL_MS = 100;
/** Evicted in the transaction of one publish, so that a lowered limit never blocks the process. */
const EVICTED_AT_ONCE = 256;
const TAIL = 'tail';
/** The log, its ids, its tail; who is subscribed, and the processes that say so. */
const MAX_DATABASES = 5;

/**
 * A log on disk. The position of an update is given inside the transaction that stores it, and
 * publishes of the same turn share one commit. Nothing is handed out before its commit, and with
 * durability `commit` nothing is acknowledged before it has been flushed to the disk.
 *
 * @throws HubgateError `transport-failed` when the directory cannot be opened
 */
export async function openLmdbTransport(options: LmdbTransportOptions): Promise<Transport> {
  try {
    await mkdir(options.path, { recursive: true, mode: 0o700 });
    const file = join(options.path, 'history.mdb');
    const root = open({ path: file, maxDbs: MAX_DATABASES });
    await chmod(file, 0o600);
    return new LmdbTransport(root, options);
  } catch (cause) {
    throw new HubgateError(
      'transport-failed',
      `The history in ${options.path} cannot be opened; is the directory writable?`,
      { cause },
    );
  }
}

class LmdbTransport implements Transport {
  readonly presence: LmdbPresence;
  readonly #root: RootDatabase;
  readonly #log: Database<StoredUpdate, number>;
  /** Id → positions, ascending: an id may be used again. */
  readonly #ids: Database<number, string>;
  readonly #meta: Database<Tail, string>;
  readonly #options: LmdbTransportOptions;
  /** Stored here but not yet handed out, by position. */
  readonly #stored = new Map<number, Update>();
  #position: number;
  #lastEventId: string | null;
  #deliver: (entries: readonly LogEntry[]) => void = () => {};
  #closed: Promise<void> | undefined;
  #pending = 0;
  #idle: () => void = () => {};
  #stopPolling: () => void = () => {};

  constructor(root: RootDatabase, options: LmdbTransportOptions) {
    this.#root = root;
    this.#options = options;
    this.#log = root.openDB({ name: 'log', encoding: 'msgpack' });
    this.#ids = root.openDB({ name: 'ids', dupSort: true, encoding: 'ordered-binary' });
    this.#meta = root.openDB({ name: 'meta', encoding: 'msgpack' });
    this.presence = new LmdbPresence({ root, clock: options.clock, log: options.log });
    const tail = this.#meta.get(TAIL);
    this.#position = tail?.position ?? 0;
    this.#lastEventId = tail?.eventId ?? null;
  }

  get position(): number {
    return this.#position;
  }

  get lastEventId(): string | null {
    return this.#lastEventId;
  }

  tail(listener: (entries: readonly LogEntry[]) => void): void {
    this.#deliver = listener;
    this.#poll();
  }

  async append(update: Update): Promise<void> {
    this.#refuseClosed();
    this.#pending += 1;
    try {
      await this.#root.transaction(() => this.#store(update));
      this.#advance();
      this.#options.appended?.();
      if (this.#options.durability === 'commit') await this.#root.flushed;
    } catch (cause) {
      throw new HubgateError('transport-failed', 'The update could not be stored', { cause });
    } finally {
      this.#pending -= 1;
      if (this.#pending === 0) this.#idle();
    }
  }

  async find(eventId: string): Promise<number | null> {
    this.#refuseClosed();
    for (const position of this.#ids.getValues(eventId)) return position;
    return null;
  }

  async read(after: number, limit: number): Promise<readonly LogEntry[]> {
    this.#refuseClosed();
    const range = this.#log.getRange({ start: after + 1, end: this.#position + 1, limit });
    return Array.from(range, ({ key, value }) => ({ position: key, update: fromStored(value) }));
  }

  wake(): void {
    if (this.#closed === undefined) this.#advance();
  }

  async check(): Promise<void> {
    this.#refuseClosed();
    try {
      await this.#root.transaction(() => this.#meta.get(TAIL));
    } catch (cause) {
      throw new HubgateError('transport-failed', 'The history cannot be written', { cause });
    }
  }

  close(): Promise<void> {
    this.#closed ??= this.#finish();
    return this.#closed;
  }

  /** Runs inside the write transaction: one writer at a time. */
  #store(update: Update): void {
    const at = this.#options.clock.now();
    const position = (this.#meta.get(TAIL)?.position ?? 0) + 1;
    this.#log.putSync(position, { ...update, at });
    this.#ids.putSync(update.id, position);
    this.#meta.putSync(TAIL, { position, eventId: update.id });
    this.#evict(position, at);
    // Kept until it is handed out: publishes of the same commit may evict it from the log before.
    this.#stored.set(position, update);
  }

  #evict(newest: number, now: number): void {
    const { size, maxAgeMs } = this.#options;
    if (size === 0 && maxAgeMs === 0) return;
    const oldest = this.#log.getRange({ end: newest, limit: EVICTED_AT_ONCE });
    for (const { key, value } of Array.from(oldest)) {
      const surplus = size > 0 && key <= newest - size;
      const expired = maxAgeMs > 0 && value.at < now - maxAgeMs;
      if (!surplus && !expired) return;
      this.#log.removeSync(key);
      this.#ids.removeSync(value.id, key);
    }
  }

  /** Another process that shares the history cannot wake this one, so it is asked. */
  #poll(): void {
    this.#stopPolling = this.#options.clock.after(POLL_MS, () => {
      if (this.#closed !== undefined) return;
      this.#advance();
      this.#poll();
    });
  }

  /** Hands out what has been committed since, whoever committed it. */
  #advance(): void {
    const tail = this.#meta.get(TAIL);
    if (tail === undefined || tail.position <= this.#position) return;
    const entries: LogEntry[] = [];
    for (let position = this.#position + 1; position <= tail.position; position += 1) {
      const update = this.#stored.get(position) ?? this.#read(position);
      this.#stored.delete(position);
      if (update !== null) entries.push({ position, update });
    }
    this.#position = tail.position;
    this.#lastEventId = tail.eventId;
    this.#deliver(entries);
  }

  #read(position: number): Update | null {
    const stored = this.#log.get(position);
    return stored === undefined ? null : fromStored(stored);
  }

  #refuseClosed(): void {
    if (this.#closed !== undefined) {
      throw new HubgateError('transport-closed', 'The history is closed');
    }
  }

  async #finish(): Promise<void> {
    this.#stopPolling();
    if (this.#pending > 0) {
      await new Promise<void>((resolve) => {
        this.#idle = resolve;
      });
    }
    await this.presence.close();
    await this.#root.close();
  }
}

function fromStored({ at: _at, ...update }: StoredUpdate): Update {
  return update;
}
