// The rows of an outbox become updates if and only if their transaction commits, and each once:
//
// * One process reads at a time: the one whose session holds an advisory lock. The server gives the lock to another
//   one as soon as that session ends, for whatever reason.
// * A row is deleted after its update is stored. A process that dies in between leaves the row to its successor, and
//   one that is only slow may store it at the same moment as its successor. `Transport.appendOnce` looks an id up and
//   stores it in one step, so it is stored once. The history knows the ids of the updates that it keeps (`size`,
//   `max_length`): if that many others were published between the two attempts, the row is published twice.
//   With `transport postgres` in the same database, rows are deleted and stored in one statement, so this limit does
//   not exist.
// * A process appends rows in their order and waits for each portion, so two processes at once keep the order too.
//
// Notifications are hints. A look every few seconds finds what they missed, and as long as rows wait for a transaction
// that is still open, of whose end nobody is notified, the table is looked at more often.

import type { Hub } from '../hub/hub.ts';
import { PublicationError } from '../hub/publication.ts';
import type { HistoryDatabase } from '../hub/transport.ts';
import type { Update } from '../hub/update.ts';
import type { Clock } from '../kernel/clock.ts';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import type { Logger } from '../kernel/log.ts';
import type { PostgresConnection, PostgresPlace } from '../postgres/connection.ts';
import { listenPostgres } from '../postgres/listen.ts';
import { channelOf } from './outbox-sql.ts';
import { type DeadLetter, type OutboxRow, OutboxTable } from './outbox-table.ts';

/** How often an outbox is looked at without a notification. */
const LOOK_MS = 5_000;
/** The same while rows wait for an open transaction: it doubles from the first to the second. */
const FIRST_WAIT_MS = 20;
const LAST_WAIT_MS = 1_000;
/** How often a process that does not read tries to become the one that does. */
const LOCK_MS = 1_000;
/** Waits after failures: it doubles from the first to the second. */
const MIN_BACKOFF_MS = 250;
const MAX_BACKOFF_MS = 10_000;
/** How long an outbox may be unreadable before health reports it. */
const UNREADABLE_MS = 15_000;
/** How often the lag is measured. */
const MEASURE_MS = 5_000;

/** What has become of the rows, and how far publishing is behind. */
export interface OutboxCounts {
  published: number;
  deadLetters: number;
  failures: number;
  /** Whether this process is the one that reads, as a number. */
  reading: number;
  rows: number;
  lagSeconds: number;
}

export interface OutboxReaderOptions {
  readonly place: PostgresPlace;
  readonly table: string;
  /** Bytes of the largest row that becomes an update. */
  readonly maxBytes: number;
  readonly hub: Pick<Hub, 'maxPublishOnce' | 'publishOnce' | 'databaseOf' | 'countStored'>;
  /** @throws PublicationError for a row that cannot be published */
  readonly updateOf: (row: OutboxRow) => Update;
  readonly clock: Clock;
  /** Returns a number from 0 up to 1. */
  readonly random: () => number;
  readonly log: Logger;
}

/** Publishes the rows of an outbox, while this process is the one that reads it. */
export class OutboxReader {
  readonly counts: OutboxCounts = {
    published: 0,
    deadLetters: 0,
    failures: 0,
    reading: 0,
    rows: 0,
    lagSeconds: 0,
  };
  readonly #options: OutboxReaderOptions;
  readonly #table: OutboxTable;
  #living: Promise<void> | null = null;
  #isClosing = false;
  /** Ends the current wait. */
  #wake: () => void = () => {};
  #isNotified = false;
  #connection: PostgresConnection | null = null;
  /** The database of the history, if the outbox is in the same one. */
  #database: HistoryDatabase | null = null;
  /** The server, and its process that ran the last session that has read; null before. */
  #lost: { readonly server: string; readonly backend: number } | null = null;
  #backoffMs = MIN_BACKOFF_MS;
  /** Monotonic time since which it could not be read, with the reason; null while it can. */
  #fault: { readonly since: number; readonly error: unknown } | null = null;
  #measuredAt = Number.NEGATIVE_INFINITY;

  constructor(options: OutboxReaderOptions) {
    this.#options = options;
    this.#table = new OutboxTable(options.table, options.maxBytes);
  }

  /** Begins to read. Another call does nothing. */
  start(): void {
    this.#living ??= this.#live();
  }

  /**
   * Checks that the outbox can be read, by this process or by another one.
   *
   * @throws HubgateError `outbox-failed`
   */
  check(): void {
    const { table, clock } = this.#options;
    if (this.#fault === null) return;
    const { since, error: cause } = this.#fault;
    if (clock.monotonic() - since < UNREADABLE_MS) return;
    const message = `The outbox ${table} cannot be read: ${messageOf(cause)}`;
    throw new HubgateError('outbox-failed', message, { cause });
  }

  /** Stops after the rows that are being published. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#wake();
    await this.#living;
  }

  async #live(): Promise<void> {
    const { clock, random } = this.#options;
    while (!this.#isClosing) {
      try {
        await this.#session();
      } catch (error) {
        this.#failed(error);
      }
      this.counts.reading = 0;
      if (this.#isClosing) break;
      await this.#wait(this.#backoffMs * (0.5 + random() / 2), clock);
      this.#backoffMs = Math.min(MAX_BACKOFF_MS, this.#backoffMs * 2);
    }
  }

  /** One session, until it is lost or this reader is closed. */
  async #session(): Promise<void> {
    const { place, table, clock, log } = this.#options;
    const notified = (): void => {
      this.#isNotified = true;
      this.#wake();
    };
    const connection = await listenPostgres(place, channelOf(table), notified, { clock });
    let lost: string | null = null;
    connection.onLost((reason) => {
      lost = reason;
      this.#wake();
    });
    this.#connection = connection;
    try {
      // The server notices within half a minute that the machine of this process is gone, and gives away the lock.
      await connection.query(
        'SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3',
      );
      await this.#table.verify(connection);
      this.#database = await this.#databaseOf(connection);
      let waitMs = FIRST_WAIT_MS;
      while (!this.#isClosing && !connection.isLost) {
        this.#isNotified = false;
        if (this.counts.reading === 0 && (await this.#table.lock(connection))) {
          this.counts.reading = 1;
          log.info('This process publishes the rows of the outbox', { table });
        }
        if (this.counts.reading === 1) await this.#publishAll(connection);
        await this.#measure(connection);
        if (!(await this.#isLockLost(connection))) this.#worked();
        waitMs = this.counts.rows === 0 ? FIRST_WAIT_MS : Math.min(waitMs * 2, LAST_WAIT_MS);
        const idleMs = this.counts.rows === 0 ? LOOK_MS : waitMs;
        if (this.#isNotified) waitMs = FIRST_WAIT_MS;
        else await this.#wait(this.counts.reading === 1 ? idleMs : LOCK_MS, clock);
      }
      if (lost !== null) throw new HubgateError('outbox-failed', lost);
    } finally {
      const { server, backend } = connection;
      if (this.counts.reading === 1 && backend !== null) this.#lost = { server, backend };
      this.#connection = null;
      connection.close();
    }
  }

  /** Whether the server still runs a statement, with the lock, that has taken too long for this process. */
  async #isLockLost(connection: PostgresConnection): Promise<boolean> {
    const lost = this.#lost;
    if (this.counts.reading === 1 || this.#fault === null || lost === null) return false;
    // A server that has started anew has other processes.
    if (connection.server !== lost.server) return false;
    return this.#table.isLockedBy(connection, lost.backend);
  }

  async #publishAll(connection: PostgresConnection): Promise<void> {
    while (!this.#isClosing && !connection.isLost) {
      const { rows, isFull } = await this.#table.next(connection);
      if (rows.length > 0) await this.#publish(connection, rows);
      if (!isFull) return;
    }
  }

  async #publish(connection: PostgresConnection, rows: readonly OutboxRow[]): Promise<void> {
    const { hub } = this.#options;
    const dead: DeadLetter[] = [];
    const valid = rows.flatMap((row) => {
      try {
        return [{ seq: row.seq, update: this.#options.updateOf(row) }];
      } catch (error) {
        if (!(error instanceof PublicationError)) throw error;
        dead.push({ seq: row.seq, reason: error.message });
        return [];
      }
    });
    const done: string[] = [];
    try {
      for (let at = 0; at < valid.length; at += hub.maxPublishOnce) {
        // The process that has the lock now publishes the rest.
        if (connection.isLost) return;
        const portion = valid.slice(at, at + hub.maxPublishOnce);
        const updates = portion.map(({ update }) => update);
        const taken = portion.map(({ seq }) => seq);
        if (this.#database === null) {
          await hub.publishOnce(updates);
          done.push(...taken);
        } else {
          await this.#database.appendWith(connection, this.#table.removal(taken), updates);
          hub.countStored(updates);
          this.counts.published += taken.length;
        }
      }
    } finally {
      await this.#settle(connection, done, dead);
    }
  }

  /** A role that may not append to the history publishes as with any other history. */
  async #databaseOf(connection: PostgresConnection): Promise<HistoryDatabase | null> {
    const { hub, table, log } = this.#options;
    try {
      return await hub.databaseOf(connection);
    } catch (error) {
      if (connection.isLost) throw error;
      log.debug('The outbox and the history are not in one database, or have different rights', {
        table,
        error: messageOf(error),
      });
      return null;
    }
  }

  async #settle(
    connection: PostgresConnection,
    done: readonly string[],
    dead: readonly DeadLetter[],
  ): Promise<void> {
    const { table, log } = this.#options;
    if (done.length + dead.length === 0) return;
    await this.#table.settle(connection, done, dead);
    this.counts.published += done.length;
    this.counts.deadLetters += dead.length;
    const [first] = dead;
    if (first === undefined) return;
    log.warn('Rows of the outbox cannot be published, and are dead letters now', {
      table,
      rows: dead.length,
      first: first.seq,
      reason: first.reason,
    });
  }

  async #measure(connection: PostgresConnection): Promise<void> {
    const now = this.#options.clock.monotonic();
    // The reader must know whether rows are left, which wait for an open transaction.
    if (this.counts.reading === 0 && now - this.#measuredAt < MEASURE_MS) return;
    this.#measuredAt = now;
    const { rows, seconds } = await this.#table.lag(connection);
    this.counts.rows = rows;
    this.counts.lagSeconds = seconds;
  }

  #worked(): void {
    this.#backoffMs = MIN_BACKOFF_MS;
    if (this.#fault === null) return;
    this.#options.log.info('The rows of the outbox are published again', {
      table: this.#options.table,
    });
    this.#fault = null;
  }

  #failed(error: unknown): void {
    const { table, clock, log } = this.#options;
    this.counts.failures += 1;
    const reported = this.#fault === null ? null : messageOf(this.#fault.error);
    this.#fault = { since: this.#fault?.since ?? clock.monotonic(), error };
    const fields = { table, code: codeOf(error), error: messageOf(error) };
    if (reported === messageOf(error)) log.debug('The outbox still cannot be read', fields);
    else log.error('The rows of the outbox are not published at the moment', fields);
  }

  #wait(ms: number, clock: Clock): Promise<void> {
    if (this.#isClosing || this.#connection?.isLost === true) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        this.#wake = () => {};
        resolve();
      };
      const cancel = clock.after(ms, done);
      this.#wake = done;
    });
  }
}
