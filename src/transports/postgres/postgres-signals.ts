import { randomUUID } from 'node:crypto';
import type { Queries, Row } from '../../postgres/connection.ts';
import type { Logger } from '../../kernel/log.ts';
import { ServerSignals } from '../server-signals.ts';
import type { Session } from './session.ts';
import type { StoredHistory } from './stored-history.ts';
import { quoted } from './tables.ts';
import { setNewest } from '../../kernel/collections.ts';

/** Signals that are read in one step. */
const AT_ONCE = 1000;
/** Signals whose keys are known, in order to find out which of them a server has lost in a failover. */
const KNOWN = 1000;

export interface PostgresSignalsOptions {
  readonly schema: string;
  readonly storedHistory: StoredHistory;
  readonly process: string;
  /** @throws while PostgreSQL is unavailable */
  readonly session: () => Session;
  readonly log: Logger;
}

/** Signals to the hubs of all nodes, in a table next to the history. Nodes that were unavailable read them later. */
export class PostgresSignals extends ServerSignals<Session> {
  readonly #options: PostgresSignalsOptions;
  readonly #s: string;
  readonly #known = new Map<number, string>();
  #last = 0;

  constructor(options: PostgresSignalsOptions) {
    super(options.log);
    this.#options = options;
    this.#s = quoted(options.schema);
  }

  /** Position of the last signal that was read. */
  get last(): number {
    return this.#last;
  }

  async begin({ reader }: Session): Promise<void> {
    const newest = await this.#newest(reader);
    for (const row of newest.toReversed()) this.#remember(row);
    const text = `SELECT position FROM ${this.#s}.signal_ends WHERE stream = $1`;
    const [end] = await reader.query(text, [this.#options.storedHistory.stream]);
    this.#last = Number(end?.['position'] ?? 0);
  }

  /** After a failover, signals may be lost, and others may have their positions: reads on after the last common one. */
  override async resume(session: Session): Promise<void> {
    const newest = await this.#newest(session.reader);
    const common = newest.find((row) => this.#known.get(Number(row['position'])) === row['key']);
    const oldest = newest.at(-1);
    const before = oldest === undefined ? 0 : Number(oldest['position']) - 1;
    if (newest[0]?.['position'] !== this.#last || common !== newest[0]) {
      this.#last = common === undefined ? Math.min(before, this.#last) : Number(common['position']);
    }
    await this.catchUp(session);
  }

  async catchUp({ reader }: Session): Promise<void> {
    const { storedHistory } = this.#options;
    const text = `SELECT position, key, process, message FROM ${this.#s}.signals
      WHERE stream = $1 AND position > $2 ORDER BY position LIMIT ${AT_ONCE}`;
    for (let count = AT_ONCE; count === AT_ONCE; ) {
      const rows = await reader.query(text, [storedHistory.stream, this.#last], {
        name: `${this.#s} signals`,
      });
      for (const row of rows) this.#take(row);
      count = rows.length;
    }
  }

  #take(row: Row): void {
    const position = Number(row['position']);
    // Another read has passed it on meanwhile.
    if (position <= this.#last) return;
    this.#last = position;
    this.#remember(row);
    if (row['process'] !== this.#options.process) this.listener(String(row['message']));
  }

  #remember({ position, key }: Row): void {
    setNewest(this.#known, Number(position), String(key), KNOWN);
  }

  /** The newest first. */
  #newest(reader: Queries): Promise<readonly Row[]> {
    const text = `SELECT position, key FROM ${this.#s}.signals
      WHERE stream = $1 ORDER BY position DESC LIMIT ${KNOWN}`;
    return reader.query(text, [this.#options.storedHistory.stream]);
  }

  protected async store(message: string): Promise<void> {
    const { storedHistory, process, session } = this.#options;
    const values = [storedHistory.stream, randomUUID(), process, message];
    const text = `SELECT ${this.#s}.signal($1, $2, $3, $4)`;
    await session().commands.query(text, values, { name: `${this.#s} signal` });
  }
}
