import { createHash, randomUUID } from 'node:crypto';
import type { PostgresTransportConfig } from '../../config/transports.ts';
import {
  type Evicted,
  type HistoryDatabase,
  type LogEntry,
  type Missed,
  type Transport,
  type TransportCounts,
  ONCE_UPDATES,
} from '../../hub/transport.ts';
import { isPossibleId, type Update } from '../../hub/update.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import { Sessions } from '../../kernel/sessions.ts';
import type { Queries } from '../../postgres/connection.ts';
import { faultOf } from '../../postgres/errors.ts';
import { GroupCommit } from '../group-commit.ts';
import { HandedOut } from '../handed-out.ts';
import { ReadBacks } from '../read-backs.ts';
import { GroupAppend } from './group-append.ts';
import { NotifiedReader } from './notified-reader.ts';
import { PostgresPresence } from './postgres-presence.ts';
import { PostgresSignals } from './postgres-signals.ts';
import { Session, type SessionPlace } from './session.ts';
import { StoredLog, type StreamPlace } from './stored-log.ts';
import { channelOf, ensureTables, quoted } from './tables.ts';

export interface PostgresTransportOptions
  extends SessionPlace,
    StreamPlace,
    Pick<PostgresTransportConfig, 'maxLength' | 'maxAgeMs' | 'durability'> {
  readonly random: () => number;
  readonly clock: Clock;
  /** Clock for the heartbeat of presence; defaults to the other clock. */
  readonly presenceClock?: Clock;
  readonly log: Logger;
}

const NO_STANDBYS = 'durability replicated needs synchronous_standby_names on the server';

/** How long a client waits if another node has already delivered the entry of its cursor. */
const CATCH_UP_MS = 5000;

/**
 * A history in PostgreSQL that the hubs of many machines share. A group is appended in one transaction, which locks the
 * row of its stream: positions have no gap, and whoever sees one sees all before it. The server notifies each process,
 * which reads what follows. A process delivers its own group at once if it is the next one.
 *
 * After every connection, and every few seconds, the reader verifies that this is the history that was read: each entry
 * has a random key and contains that of its predecessor. If not, the history has lost its end (a standby that did not
 * have it was promoted, or the server crashed with durability async), and the entries that replace it are delivered.
 *
 * @throws HubgateError `transport-failed`, `history-too-new`, `postgres-pooler`
 */
export async function openPostgresTransport(options: PostgresTransportOptions): Promise<Transport> {
  const transport = new PostgresTransport(options);
  await transport.open();
  return transport;
}

class PostgresTransport implements Transport {
  readonly presence: PostgresPresence;
  readonly signals: PostgresSignals;
  readonly #s: string;
  readonly #schema: string;
  readonly #durability: PostgresTransportConfig['durability'];
  readonly #log: Logger;
  readonly #sessions: Sessions<Session>;
  readonly #storedLog: StoredLog;
  readonly #handedOut = new HandedOut();
  readonly #readBacks: ReadBacks;
  readonly #reader: NotifiedReader;
  readonly #append: GroupAppend;
  readonly #commits: GroupCommit;
  readonly #process = randomUUID();
  #closing: Promise<void> | undefined;
  #isClosed = false;
  /** The last request for the end of the history, and the next one, which several callers share. */
  #look: Promise<void> = Promise.resolve();
  #nextLook: Promise<void> | null = null;
  /** Announces the arrivals and departures that happened while PostgreSQL was unavailable. */
  #announce: () => void = () => {};

  constructor(options: PostgresTransportOptions) {
    const { schema, stream, clock, random, log, maxLength, maxAgeMs, durability } = options;
    const channel = channelOf(schema, stream);
    const sessions = new Sessions<Session>({
      store: 'PostgreSQL',
      meanwhile: 'the hub refuses publications',
      connect: () =>
        Session.open(options, channel, (payload) => this.#reader.notified(payload), clock),
      isElsewhere: (error) => faultOf(error).isElsewhere,
      ...{ clock, random, log },
    });
    const storedLog = new StoredLog({ schema, stream });
    const place = { schema, storedLog, process: this.#process, session: () => sessions.live() };
    this.presence = new PostgresPresence({ ...place, clock: options.presenceClock ?? clock, log });
    const signals = new PostgresSignals(place);
    const handedOut = this.#handedOut;
    const readBacks = new ReadBacks(clock);
    const read = { storedLog, handedOut, readBacks, clock };
    const reader = new NotifiedReader({ ...read, signals, log });
    const append = new GroupAppend({
      ...{ ...read, schema, maxLength, maxAgeMs, durability, sessions },
      ...{ writer: this.#process, deliver: reader.deliverOwn, signals },
    });
    // A group must not evict its own entries before a reader has seen them.
    const most = maxLength === 0 ? Infinity : maxLength;
    this.#commits = new GroupCommit((group) => append.store(group), clock, most);
    this.mostOnce = Math.min(most, ONCE_UPDATES);
    this.signals = signals;
    this.#append = append;
    this.#s = quoted(schema);
    this.#schema = schema;
    this.#durability = durability;
    this.#log = log;
    this.#sessions = sessions;
    this.#storedLog = storedLog;
    this.#readBacks = readBacks;
    this.#reader = reader;
  }

  /** Connects for the first time. Entries that exist by then are not delivered. */
  open(): Promise<void> {
    return this.#sessions.open({
      begin: async (session) => {
        await this.#prepare(session);
        await this.#reader.begin(session);
      },
      resume: async (session) => {
        await this.#prepare(session);
        // Must be first: replays continue as soon as the session is in use.
        await this.signals.resume(session.reader);
        await this.#reader.reconcile(session);
        this.#announce = await this.presence.restore(session);
      },
      follow: (session) => {
        this.#announce();
        this.#announce = () => {};
        return this.#reader.follow(session);
      },
      ended: () => this.#readBacks.end(),
    });
  }

  get position(): number {
    return this.#handedOut.position;
  }

  get lastEventId(): string | null {
    return this.#handedOut.lastEventId;
  }

  get lastUpdateId(): string | null {
    return this.#handedOut.lastUpdateId;
  }

  async evicted(): Promise<Evicted> {
    this.#refuseClosed();
    const { positions } = this.#handedOut;
    const stored = await this.#ask((session) => this.#storedLog.evicted(session.commands));
    return { updates: positions.seen(stored.updates), events: positions.seen(stored.events) };
  }

  tail(
    listener: (entries: readonly LogEntry[]) => void,
    overtaken: (missed: Missed) => void = () => {},
  ): void {
    this.#reader.deliver = listener;
    this.#reader.overtaken = overtaken;
  }

  async append(update: Update): Promise<void> {
    this.#refuseClosed();
    await this.#commits.append(update);
  }

  readonly mostOnce: number;

  async appendOnce(updates: readonly Update[]): Promise<void> {
    this.#refuseClosed();
    await this.#commits.appendOnce(updates);
  }

  readonly database: HistoryDatabase = {
    includes: async (connection) => {
      // Whether two addresses lead to the same database shows what one of them has stored.
      const writer = `joined ${randomUUID()}`;
      const { stream } = this.#storedLog;
      await this.#ask(({ commands }) =>
        commands.query(`INSERT INTO ${this.#s}.writers VALUES ($1, $2, 0, 0, now())`, [
          stream,
          writer,
        ]),
      );
      const rows = await connection.query(
        `DELETE FROM ${this.#s}.writers WHERE stream = $1 AND writer = $2 RETURNING 1`,
        [stream, writer],
      );
      return rows.length > 0;
    },
    appendWith: async (connection, statement, updates) => {
      await this.#append.storeWith(connection, statement, updates);
      // Appends that are faster than the tail would make it miss what is evicted.
      await this.caughtUp().catch(() => {});
    },
  };

  async find(eventId: string): Promise<number | null> {
    this.#refuseClosed();
    if (!isPossibleId(eventId)) return null;
    const stored = await this.#ask((session) => this.#storedLog.find(session.commands, eventId));
    if (stored === null) return null;
    // Another node has already delivered it. A client that continues after it must not get it again.
    if (stored > this.#handedOut.stored) await this.#reached(stored);
    return this.#handedOut.positions.seen(stored);
  }

  async read(after: number, limit: number, bytes = Infinity): Promise<readonly LogEntry[]> {
    this.#refuseClosed();
    const range = [this.#handedOut.positions.after(after), this.#handedOut.stored] as const;
    if (range[0] > range[1]) return [];
    const entries = await this.#ask((session) =>
      this.#storedLog.page(session.commands, range, limit, bytes),
    );
    return entries.map((entry) => this.#handedOut.seen(entry));
  }

  readonly counts: TransportCounts = {
    count: async (key, events, windowMs) => {
      const digest = createHash('sha256').update(key).digest('base64url');
      const [row] = await this.#ask((session) =>
        session.commands.query(
          `SELECT * FROM ${this.#s}.count($1, $2, $3, $4)`,
          [this.#storedLog.stream, digest, events, windowMs],
          { name: `${this.#s} count` },
        ),
      );
      const { current, previous, elapsed } = row ?? {};
      return {
        current: Number(current),
        previous: Number(previous),
        elapsedMs: Number(elapsed),
      };
    },
  };

  caughtUp(): Promise<void> {
    this.#refuseClosed();
    // What was asked before this call may not know of what somebody has heard since; what is asked next does.
    this.#nextLook ??= (async () => {
      await this.#look.catch(() => {});
      this.#nextLook = null;
      this.#look = this.#catchUp();
      await this.#look;
    })();
    return this.#nextLook;
  }

  async #catchUp(): Promise<void> {
    const { position } = await this.#ask((session) => this.#storedLog.end(session.commands));
    if (position > this.#handedOut.stored) await this.#reached(position);
  }

  wake(): void {
    this.#reader.lookAgain();
  }

  async check(): Promise<void> {
    this.#refuseClosed();
    const standbys = await this.#ask(({ commands }) => this.#standbys(commands));
    if (this.#durability === 'replicated' && standbys === '') {
      throw new HubgateError('transport-failed', `PostgreSQL refuses updates: ${NO_STANDBYS}`);
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#finish();
    return this.#closing;
  }

  async #prepare({ commands }: Session): Promise<void> {
    await ensureTables(commands, this.#schema);
    await this.#storedLog.create(commands);
    if (this.#durability === 'replicated' && (await this.#standbys(commands)) === '') {
      this.#log.warn('PostgreSQL refuses updates', { reason: NO_STANDBYS });
    }
  }

  /** Writes, and resolves to the synchronous standbys that the server is configured with. */
  async #standbys(on: Queries): Promise<string> {
    const [row] = await on.query(
      `INSERT INTO ${this.#s}.writers VALUES ($1, 'check', 0, 0, now())
        ON CONFLICT (stream, writer) DO UPDATE SET at = excluded.at
        RETURNING current_setting('synchronous_standby_names') AS standbys`,
      [this.#storedLog.stream],
      { name: `${this.#s} check` },
    );
    return String(row?.['standbys']);
  }

  async #finish(): Promise<void> {
    // An active session completes pending appends; a lost one is not replaced any more.
    this.#sessions.openNoMore();
    // Departures are announced in the history.
    await this.presence.close();
    this.#isClosed = true;
    await this.#commits.drained();
    await this.#sessions.close();
  }

  #ask<Reply>(question: (session: Session) => Promise<Reply>): Promise<Reply> {
    return this.#sessions.ask(question);
  }

  /** @throws HubgateError `transport-failed` if the reader does not reach it in time */
  async #reached(position: number): Promise<void> {
    this.#reader.lookAgain();
    const why = 'This node is behind the history in PostgreSQL';
    const behind = new HubgateError('transport-failed', why);
    await this.#readBacks.wait({ position, key: null }, CATCH_UP_MS, behind);
  }

  #refuseClosed(): void {
    if (this.#isClosed) {
      throw new HubgateError('transport-closed', 'The connection to PostgreSQL is closed');
    }
  }
}
