import type { Evicted } from '../../hub/transport.ts';
import { MAX_ID_BYTES } from '../../hub/update.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Queries, Row } from '../../postgres/connection.ts';
import {
  decodeUpdate,
  type EntryMark,
  type HistoryEnd,
  type Range,
  type StoredEntry,
} from '../stored-entry.ts';
import type { ComparedHistory } from '../lost-entries.ts';
import { channelOf, quoted } from './tables.ts';

/** Where a history is. */
export interface StreamPlace {
  readonly schema: string;
  readonly stream: string;
}

/** A moment of a history, with the entries that follow a position. */
export interface HistoryView extends HistoryEnd {
  readonly evicted: Evicted;
  /** Position of the last signal. */
  readonly signals: number;
  readonly entries: readonly StoredEntry[];
}

/** The history as stored in PostgreSQL. Each method is one statement on the given connection. */
export class StoredHistory implements ComparedHistory<Queries> {
  /** Number of the stream in the tables; 0 before {@link create}, and if it does not exist. */
  stream = 0;
  readonly #place: StreamPlace;
  readonly #s: string;

  constructor(place: StreamPlace) {
    this.#place = place;
    this.#s = quoted(place.schema);
  }

  /** Creates the history unless it exists. */
  async create(on: Queries): Promise<void> {
    if (await this.exists(on)) return;
    const { schema, stream } = this.#place;
    const s = this.#s;
    await on.query(
      `WITH made AS (
        INSERT INTO ${s}.streams (name, channel) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id
      ) INSERT INTO ${s}.signal_ends SELECT id, 0 FROM made`,
      [stream, channelOf(schema, stream)],
    );
    if (!(await this.exists(on))) {
      throw new HubgateError('transport-failed', 'The stream was removed');
    }
  }

  /** Returns whether the history exists. */
  async exists(on: Queries): Promise<boolean> {
    const text = `SELECT id FROM ${this.#s}.streams WHERE name = $1`;
    const [row] = await on.query(text, [this.#place.stream]);
    if (row === undefined) return false;
    this.stream = Number(row['id']);
    return true;
  }

  async end(on: Queries): Promise<HistoryEnd> {
    const s = this.#s;
    const text = `SELECT position AS top, key AS top_key, last_id, last_update_id
      FROM ${s}.streams WHERE id = $1`;
    const [row] = await on.query(text, [this.stream], { name: `${s} end` });
    return endOf(row);
  }

  /** The end of the history, and the entries after a position, as they are at one moment. */
  async view(on: Queries, after: number, limit: number, bytes: number): Promise<HistoryView> {
    const s = this.#s;
    const text = `SELECT s.position AS top, s.key AS top_key, s.last_id, s.last_update_id,
        s.evicted_updates, s.evicted_events, n.position AS signals, ${ENTRY_COLUMNS}
      FROM ${s}.streams s JOIN ${s}.signal_ends n ON n.stream = s.id
      LEFT JOIN LATERAL (${this.#pageSql('p.position > $2')}) e ON true
      WHERE s.id = $1 ORDER BY e.position`;
    const values = [this.stream, after, limit, finite(bytes)];
    const rows = await on.query(text, values, { name: `${s} view`, timeoutMs: VIEW_TIMEOUT_MS });
    const [first] = rows;
    const entries = rows.filter((row) => row['position'] !== null).map(decodeEntry);
    const signals = Number(first?.['signals'] ?? 0);
    return { ...endOf(first), evicted: evictedOf(first), signals, entries };
  }

  /** Reads from the first of two positions to the second, as far as `limit` and `bytes` allow. */
  async page(
    on: Queries,
    [first, last]: Range,
    limit: number,
    bytes: number,
  ): Promise<readonly StoredEntry[]> {
    return (await this.rows(on, [first, last], limit, bytes)).map(decodeEntry);
  }

  /** As {@link page}, but not decoded. */
  rows(on: Queries, [first, last]: Range, limit: number, bytes: number): Promise<readonly Row[]> {
    const text = this.#pageSql('p.position BETWEEN $2 AND $5');
    const values = [this.stream, first, Math.min(limit, MOST), finite(bytes), last];
    return on.query(text, values, { name: `${this.#s} page` });
  }

  /** The newest entries between two positions without their bodies, oldest first, at most `limit`. */
  async newest(on: Queries, [first, last]: Range, limit: number): Promise<readonly EntryMark[]> {
    if (first > last) return [];
    const text = `SELECT position, key, id, presence FROM ${this.#s}.entries
      WHERE stream = $1 AND position BETWEEN $2 AND $3 ORDER BY position DESC LIMIT $4`;
    const values = [this.stream, first, last, limit];
    const rows = await on.query(text, values, { name: `${this.#s} newest` });
    return rows.toReversed().map(({ position, key, id, presence }) => {
      const names = { key: String(key), id: String(id) };
      return { position: Number(position), ...names, isEvent: presence === true };
    });
  }

  /** The earliest kept position of an id; null if there is none. */
  async find(on: Queries, eventId: string): Promise<number | null> {
    // No text in the database contains it.
    if (eventId.includes('\0')) return null;
    const text = `SELECT position FROM ${this.#s}.entries
      WHERE stream = $1 AND id = $2 AND octet_length(id) <= ${MAX_ID_BYTES} ORDER BY position LIMIT 1`;
    const [row] = await on.query(text, [this.stream, eventId], { name: `${this.#s} find` });
    return row === undefined ? null : Number(row['position']);
  }

  /** Positions of the newest evicted entries. */
  async evicted(on: Queries): Promise<Evicted> {
    const text = `SELECT evicted_updates, evicted_events FROM ${this.#s}.streams WHERE id = $1`;
    const [row] = await on.query(text, [this.stream], { name: `${this.#s} evicted` });
    return evictedOf(row);
  }

  /** A page ends before the entry that is behind so many bytes; $1 stream, $3 entries, $4 bytes. */
  #pageSql(range: string): string {
    return `SELECT ${ENTRY_COLUMNS} FROM (
        SELECT p.*, sum(p.size) OVER (ORDER BY p.position) - p.size AS bytes_before FROM (
          SELECT * FROM ${this.#s}.entries p WHERE p.stream = $1 AND ${range} ORDER BY p.position LIMIT $3
        ) p
      ) e WHERE e.bytes_before < $4 ORDER BY e.position`;
  }
}

/** A server that says nothing for this long is given up, so that a network that was cut is noticed soon. */
const VIEW_TIMEOUT_MS = 5000;
/** Entries of a page, however many are asked for. */
const MOST = 10_000;

function endOf(row: Row | undefined): HistoryEnd {
  if (row === undefined) throw new HubgateError('transport-failed', 'The stream was removed');
  const { top, top_key: key, last_id: id, last_update_id: updateId } = row;
  return {
    position: Number(top),
    key: typeof key === 'string' && key !== '' ? key : null,
    id: typeof id === 'string' ? id : null,
    updateId: typeof updateId === 'string' ? updateId : null,
  };
}

function evictedOf(row: Row | undefined): Evicted {
  return {
    updates: Number(row?.['evicted_updates'] ?? 0),
    events: Number(row?.['evicted_events'] ?? 0),
  };
}

function finite(bytes: number): number {
  return Math.min(bytes, Number.MAX_SAFE_INTEGER);
}

/** The columns that {@link decodeEntry} reads, of the table `e`. */
const ENTRY_COLUMNS = 'e.position, e.at, e.presence, e.key, e.previous, e.id, e.body';

/** @throws HubgateError `history-damaged` */
export function decodeEntry(row: Row): StoredEntry {
  const { position, at, presence, key, previous, id, body } = row;
  try {
    const update = decodeUpdate(String(id), String(body), presence === true);
    const { topics, data } = update;
    if (!Array.isArray(topics) || typeof data !== 'string') throw new Error('no topics or no data');
    const place = { position: Number(position), at: Number(at) };
    return { ...place, key: String(key), previous: String(previous), update };
  } catch (cause) {
    const message = `the entry at position ${Number(position)} is not one of a hub`;
    throw new HubgateError('history-damaged', message, { cause });
  }
}
