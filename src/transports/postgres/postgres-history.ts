import { randomBytes } from 'node:crypto';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import {
  connectPostgres,
  type PostgresConnection,
  type PostgresPlace,
  type Row,
} from '../../postgres/connection.ts';
import type { Range, StoredEntry } from '../stored-entry.ts';
import {
  type History,
  type DatedUpdate,
  type HistoryStats,
  type HistorySurroundings,
  ServerHistory,
  streamNotFound,
} from '../history.ts';
import { appendGroup } from './group-append.ts';
import { decodeEntry, StoredHistory, type StreamPlace } from './stored-history.ts';
import { ensureTables, hasTables, quoted } from './tables.ts';

/**
 * Opens the history of a hub in PostgreSQL for its operator. Gateways may be using it.
 *
 * @throws HubgateError `history-not-found`, `history-too-new`, `transport-failed`
 */
export async function openPostgresHistory(
  place: PostgresPlace & StreamPlace,
  { clock, create }: HistorySurroundings,
): Promise<History> {
  const connection = await connectPostgres(place, { clock });
  try {
    const history = new StoredHistory(place);
    if (create) {
      await ensureTables(connection, place.schema);
      await history.create(connection);
    } else if (
      !(await hasTables(connection, place.schema)) ||
      (!(await history.exists(connection)) && (await hasStreams(connection, place.schema)))
    ) {
      throw streamNotFound(place.stream, 'PostgreSQL');
    }
    return new PostgresHistory(place.schema, connection, history);
  } catch (error) {
    connection.close();
    if (error instanceof HubgateError) throw error;
    const message = `PostgreSQL cannot be used: ${messageOf(error)}`;
    throw new HubgateError('transport-failed', message, { cause: error });
  }
}

/** New tables have none, so a name that is not there is no mistake: its history is empty. */
async function hasStreams(on: PostgresConnection, schema: string): Promise<boolean> {
  return (await on.query(`SELECT FROM ${quoted(schema)}.streams LIMIT 1`)).length > 0;
}

class PostgresHistory extends ServerHistory<Row> {
  protected readonly store = 'PostgreSQL';
  readonly #schema: string;
  readonly #connection: PostgresConnection;
  readonly #history: StoredHistory;

  constructor(schema: string, connection: PostgresConnection, history: StoredHistory) {
    super();
    this.#schema = schema;
    this.#connection = connection;
    this.#history = history;
  }

  /** The bytes are this hub's part of the table, by its number of entries. */
  async stats(): Promise<HistoryStats> {
    const s = quoted(this.#schema);
    const at = (order: 'ASC' | 'DESC'): string =>
      `(SELECT at FROM ${s}.entries WHERE stream = s.id AND position > s.evicted_updates ORDER BY position ${order} LIMIT 1)`;
    const [row] = await this.#connection.query(
      `SELECT s.updates, s.events, s.position, s.last_id, ${at('ASC')} AS oldest, ${at('DESC')} AS newest,
        pg_total_relation_size('${s.replaceAll("'", "''")}.entries') * (s.updates + s.events)
          / greatest(1, (SELECT sum(updates + events) FROM ${s}.streams)) AS bytes
      FROM ${s}.streams s WHERE s.id = $1`,
      [this.#history.stream],
    );
    const { updates, events, position, last_id: id, oldest, newest, bytes } = row ?? {};
    return {
      updates: Number(updates ?? 0),
      events: Number(events ?? 0),
      position: Number(position ?? 0),
      lastEventId: typeof id === 'string' ? id : null,
      oldestAt: oldest === null || oldest === undefined ? null : Number(oldest),
      newestAt: newest === null || newest === undefined ? null : Number(newest),
      bytes: Math.round(Number(bytes ?? 0)),
    };
  }

  async add(entries: readonly DatedUpdate[]): Promise<void> {
    await appendGroup(this.#connection, {
      ...{ schema: this.#schema, stream: this.#history.stream, writer: null, durability: 'commit' },
      name: randomBytes(12).toString('base64url'),
      updates: entries.map(({ update }) => update),
      times: entries.map(({ at }) => at),
      ...{ maxLength: 0, maxAgeMs: 0, most: 0 },
    });
  }

  async close(): Promise<void> {
    this.#connection.close();
  }

  protected async end(): Promise<number> {
    return this.#history.stream === 0 ? 0 : (await this.#history.end(this.#connection)).position;
  }

  protected rows(range: Range, limit: number, bytes: number): Promise<readonly Row[]> {
    return this.#history.rows(this.#connection, range, limit, bytes);
  }

  protected positionOf(row: Row): number {
    return Number(row['position']);
  }

  protected decode(row: Row): StoredEntry {
    return decodeEntry(row);
  }
}
