// The order of an outbox. Rows are taken in the order of `seq`, a number that the database gives a row when it is
// inserted, and only rows of transactions below the oldest one that is still open (`pg_snapshot_xmin`).
//
// 1. No row overtakes one that was committed before its transaction began, nor one that was committed before the row
//    itself was inserted: a row that is committed has its number before any that is inserted later. If the later row is
//    visible to a look, the earlier one is visible too, and has a smaller number.
// 2. Nothing is skipped. A number alone would skip the rows of a transaction that was open when its successors were
//    taken. Here, rows that are done are deleted, and everything that is left is looked at again.
// 3. Overlapping transactions that write the same row of a table wait for each other. If they insert into the outbox
//    after that (a trigger does), the one that commits first has the smaller number, and the last data published are
//    those that the table has.
//
// So a row whose transaction is not below `pg_snapshot_xmin` stops the look, and what is behind it waits.
//
// A row with a transaction number that this server has not reached (a restored backup) counts as committed long ago.
// `xid8`, `pg_current_xact_id` and `pg_snapshot_xmin` exist since PostgreSQL 13.

import { MAX_TOPICS } from '../hub/publication.ts';
import type { JoinedStatement } from '../hub/transport.ts';
import type { Update } from '../hub/update.ts';
import type { PostgresConnection, Queries, Row } from '../postgres/connection.ts';
import { HubgateError } from '../kernel/error.ts';
import { deadLettersOf, identifiers, quotedTable } from './outbox-sql.ts';

/** Rows of one look. */
const ROWS_AT_ONCE = 256;
/** Bytes of one look, without those of its last row. */
const BYTES_AT_ONCE = 4 * 1024 * 1024;
/** Rows that are counted; beyond it the lag in rows is at least this. */
const MAX_COUNTED = 10_000;
/** Elements of an array of topics that is read. NULL and repeated ones do not count as topics. */
export const MAX_ELEMENTS = 4 * MAX_TOPICS;
/** How long the server may take to move rows, one of which may have almost a gigabyte. */
const MOVE_TIMEOUT_MS = 120_000;
/** Dead letters that are kept, and most that are removed at a time. */
const DEAD_LETTERS_KEPT = 10_000;
const TRIMMED_AT_ONCE = 1_000;

/** A row, as it was inserted. */
export interface OutboxRow extends Omit<Update, 'presence' | 'once'> {
  /** Its number, as text. */
  readonly seq: string;
  /** It has more bytes or topics than an update may have, and none of them are here. */
  readonly isTooLarge: boolean;
}

/** A row that cannot be published. */
export interface DeadLetter {
  readonly seq: string;
  readonly reason: string;
}

/** How far publishing is behind. */
export interface OutboxLag {
  /** At most {@link MAX_COUNTED}. */
  readonly rows: number;
  /** Age of the oldest row. */
  readonly seconds: number;
}

/** The tables of an outbox. Each method is one statement, except where it says so. */
export class OutboxTable {
  readonly #name: string;
  readonly #table: string;
  readonly #dead: string;
  readonly #maxBytes: number;

  /**
   * @param name name of the table, possibly with its schema
   * @param maxBytes bytes of the largest row that becomes an update
   */
  constructor(name: string, maxBytes: number) {
    this.#name = name;
    this.#table = quotedTable(identifiers(name));
    this.#dead = quotedTable(deadLettersOf(identifiers(name)));
    this.#maxBytes = maxBytes;
  }

  /**
   * Checks that both tables exist.
   *
   * @throws HubgateError `no-outbox-table`
   */
  async verify(on: Queries): Promise<void> {
    const [found] = await on.query(
      'SELECT to_regclass($1) IS NOT NULL AS rows, to_regclass($2) IS NOT NULL AS dead',
      [this.#table, this.#dead],
    );
    if (found?.['rows'] === true && found['dead'] === true) return;
    const message = `The tables of the outbox ${this.#name} do not exist: create them with hubgate outbox sql | psql`;
    throw new HubgateError('no-outbox-table', message);
  }

  /** Whether this session is the one that reads, from now until it ends. */
  async lock(on: Queries): Promise<boolean> {
    const [row] = await on.query(
      `SELECT pg_try_advisory_lock(hashtextextended('hubgate outbox ' || to_regclass($1)::oid::text, 0)) AS held`,
      [this.#table],
    );
    return row?.['held'] === true;
  }

  /** Whether the session of this process of the server has the lock. */
  async isLockedBy(on: Queries, backend: number): Promise<boolean> {
    const [row] = await on.query(
      `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $2
        AND ((classid::bigint << 32) | objid::bigint) =
          hashtextextended('hubgate outbox ' || to_regclass($1)::oid::text, 0)) AS held`,
      [this.#table, backend],
    );
    return row?.['held'] === true;
  }

  /** The next rows in their order, and whether there are more that can or will be read. */
  async next(
    on: Queries,
  ): Promise<{ readonly rows: readonly OutboxRow[]; readonly isFull: boolean }> {
    const rows = await on.query(
      `WITH moment AS MATERIALIZED (
        SELECT pg_snapshot_xmin(s) AS xmin, pg_snapshot_xmax(s) AS xmax FROM pg_current_snapshot() AS s
      ), picked AS (
        SELECT o.*, octet_length(o.data)::bigint + coalesce(octet_length(o.topic), 0) + coalesce(octet_length(o.id), 0)
          + CASE WHEN cardinality(o.topics) > $4 THEN $3 + 1
            ELSE coalesce(octet_length(array_to_string(o.topics, '')), 0) END
          + coalesce(octet_length(o.type), 0) AS size,
          o.xid >= (SELECT xmin FROM moment) AND o.xid < (SELECT xmax FROM moment) AS waits
        FROM ${this.#table} o ORDER BY o.seq LIMIT $1
      ), counted AS (
        SELECT *, size > $3 AS too_large, bool_or(waits) OVER (ORDER BY seq) AS stopped,
          sum(size) OVER (ORDER BY seq) - size AS before FROM picked
      )
      SELECT seq::text, left(coalesce(id, ''), 2000) AS id, extract(epoch FROM created_at)::text AS at,
        CASE WHEN too_large THEN NULL ELSE topic END AS topic,
        CASE WHEN too_large THEN NULL ELSE topics END AS topics,
        CASE WHEN too_large THEN '' ELSE data END AS data,
        private, left(type, 2000) AS type, retry::text, too_large
      FROM counted WHERE NOT stopped AND before < $2 ORDER BY counted.seq`,
      [ROWS_AT_ONCE, BYTES_AT_ONCE, this.#maxBytes, MAX_ELEMENTS],
      { name: `next of ${this.#table}` },
    );
    return { rows: rows.map(rowOf), isFull: rows.length > 0 };
  }

  /** Removes rows that are published, and moves those that cannot be, in one transaction. */
  async settle(
    connection: PostgresConnection,
    done: readonly string[],
    dead: readonly DeadLetter[],
  ): Promise<void> {
    if (dead.length === 0) {
      await this.#remove(connection, done);
      return;
    }
    await connection.transaction(async (on) => {
      await this.#remove(on, done);
      await on.query(
        `WITH given AS (
          SELECT * FROM unnest($1::bigint[], $2::text[]) AS g(seq, reason)
        ), gone AS (
          DELETE FROM ${this.#table} o USING given WHERE o.seq = given.seq RETURNING o.*, given.reason
        )
        INSERT INTO ${this.#dead} (seq, id, topic, topics, data, private, type, retry, created_at, reason)
        SELECT seq, id, topic, topics, data, private, type, retry, created_at, reason FROM gone`,
        [dead.map(({ seq }) => seq), dead.map(({ reason }) => reason)],
        { timeoutMs: MOVE_TIMEOUT_MS },
      );
      await on.query(
        `DELETE FROM ${this.#dead} WHERE nr IN (SELECT nr FROM ${this.#dead}
          WHERE nr <= (SELECT max(nr) FROM ${this.#dead}) - $1 ORDER BY nr LIMIT $2)`,
        [DEAD_LETTERS_KEPT, TRIMMED_AT_ONCE],
      );
    });
  }

  /** The statement that removes rows, as a part of another one. */
  removal(done: readonly string[]): JoinedStatement {
    return {
      text: (parameter) => `DELETE FROM ${this.#table} WHERE seq = ANY (${parameter}::bigint[])`,
      value: done,
    };
  }

  async lag(on: Queries): Promise<OutboxLag> {
    const [row] = await on.query(
      `SELECT (SELECT count(*) FROM (SELECT FROM ${this.#table} LIMIT ${MAX_COUNTED}) counted) AS rows,
        (SELECT extract(epoch FROM clock_timestamp() - created_at)::float8
          FROM ${this.#table} ORDER BY seq LIMIT 1) AS seconds`,
    );
    return {
      rows: Number(row?.['rows'] ?? 0),
      seconds: Math.max(0, Number(row?.['seconds'] ?? 0)),
    };
  }

  async #remove(on: Queries, done: readonly string[]): Promise<void> {
    if (done.length === 0) return;
    const { text, value } = this.removal(done);
    await on.query(text('$1'), [value], { name: `remove from ${this.#table}` });
  }
}

function rowOf(row: Row): OutboxRow {
  const { seq, id, at, topic, topics, data, type, retry } = row;
  // An array of PostgreSQL may contain NULL, which is left out, and arrays.
  const items: readonly unknown[] = Array.isArray(topics)
    ? topics.flat(Number.POSITIVE_INFINITY)
    : [];
  const listed = items.filter((one) => typeof one === 'string');
  return {
    seq: String(seq),
    // The same whenever it is read, so that it is published once.
    id: id === '' ? `urn:hubgate:outbox:${String(seq)}:${String(at)}` : String(id),
    topics: typeof topic === 'string' ? [topic, ...listed] : listed,
    data: String(data),
    private: row['private'] === true,
    type: typeof type === 'string' ? type : null,
    retry: typeof retry === 'string' ? retry : null,
    isTooLarge: row['too_large'] === true,
  };
}
