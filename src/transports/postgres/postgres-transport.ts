import { hash, randomUUID } from 'node:crypto';
import type { PostgresTransportConfig } from '../../config/transports.ts';
import type { HistoryDatabase, Transport, TransportCounts } from '../../hub/transport.ts';
import type { Clock } from '../../kernel/clock.ts';
import { HubgateError, ignore } from '../../kernel/error.ts';
import type { Logger } from '../../kernel/log.ts';
import { Sessions } from '../../kernel/sessions.ts';
import { faultOf } from '../../postgres/connection.ts';
import { DeliveredPosition } from '../delivered-position.ts';
import { groupStore, ReadBacks } from '../read-backs.ts';
import { ServerPresence } from '../server-presence.ts';
import { type QueriedHistory, ServerTransport } from '../server-transport.ts';
import { GroupAppend } from './group-append.ts';
import { NotifiedReader } from './notified-reader.ts';
import { PostgresPresence } from './postgres-presence.ts';
import { PostgresSignals } from './postgres-signals.ts';
import { Session, type SessionPlace } from './session.ts';
import { StoredHistory, type StreamPlace } from './stored-history.ts';
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
  const { schema, stream, clock, random, log, maxLength, maxAgeMs, durability } = options;
  const isElsewhere = (error: unknown): boolean => faultOf(error).isElsewhere;
  const sessions: Sessions<Session> = new Sessions<Session>({
    store: 'PostgreSQL',
    meanwhile: 'the hub refuses publications',
    connect: () =>
      Session.open(
        options,
        channelOf(schema, stream),
        (payload) => reader.notified(payload),
        clock,
      ),
    ...{ isElsewhere, clock, random, log },
  });
  const process = randomUUID();
  const storedHistory = new StoredHistory({ schema, stream });
  const place = { schema, storedHistory, process };
  const session = () => sessions.live();
  const signals = new PostgresSignals({ ...place, session, log });
  const delivered = new DeliveredPosition();
  const readBacks = new ReadBacks(clock);
  const read = { storedHistory, delivered, readBacks, clock };
  const reader = new NotifiedReader({ ...read, signals, log });
  const append = new GroupAppend({
    ...{ schema, storedHistory, maxLength, maxAgeMs, durability, signals, clock },
    ...{ writer: process, deliver: reader.deliverOwn },
  });
  const refuses = async (session: Session): Promise<boolean> =>
    (await standbysOf(session, schema, storedHistory)) === '' && durability === 'replicated';
  const transport: ServerTransport<Session> = new ServerTransport<Session>({
    ...{ store: 'PostgreSQL', clock, maxLength, sessions, delivered, readBacks, reader, signals },
    storedHistory: onSessions(storedHistory),
    presence: new ServerPresence({
      ...{ store: 'PostgreSQL', session, clock: options.presenceClock ?? clock, log },
      isAway: () => sessions.isAway,
      isElsewhere,
      steps: (live) => new PostgresPresence({ ...place, session: live }),
    }),
    counts: countsOf(schema, storedHistory, sessions),
    database: databaseOf(schema, storedHistory, sessions, append, () => transport.caughtUp()),
    append: groupStore<Session>({
      ...{ store: 'PostgreSQL', sessions, delivered, readBacks, signals, clock, faultOf },
      attempt: (one, group, of) => append.attempt(one, group, of),
    }),
    async prepare(session) {
      await ensureTables(session.commands, schema);
      await storedHistory.create(session.commands);
      if (durability === 'replicated' && (await refuses(session))) {
        log.warn('PostgreSQL refuses updates', { reason: NO_STANDBYS });
      }
    },
    async check(session) {
      if (!(await refuses(session))) return;
      throw new HubgateError('transport-failed', `PostgreSQL refuses updates: ${NO_STANDBYS}`);
    },
  });
  await transport.open();
  return transport;
}

/** The stored history, asked on the connection for replays. */
function onSessions(storedHistory: StoredHistory): QueriedHistory<Session> {
  return {
    end: ({ commands }) => storedHistory.end(commands),
    page: ({ commands }, range, limit, bytes) => storedHistory.page(commands, range, limit, bytes),
    newest: ({ commands }, range, limit) => storedHistory.newest(commands, range, limit),
    find: ({ commands }, eventId) => storedHistory.find(commands, eventId),
    evicted: ({ commands }) => storedHistory.evicted(commands),
  };
}

/** Writes, and resolves to the synchronous standbys that the server is configured with. */
async function standbysOf(
  { commands }: Session,
  schema: string,
  { stream }: StoredHistory,
): Promise<string> {
  const s = quoted(schema);
  const [row] = await commands.query(
    `INSERT INTO ${s}.writers VALUES ($1, 'check', 0, 0, now())
      ON CONFLICT (stream, writer) DO UPDATE SET at = excluded.at
      RETURNING current_setting('synchronous_standby_names') AS standbys`,
    [stream],
    { name: `${s} check` },
  );
  return String(row?.['standbys']);
}

function countsOf(
  schema: string,
  storedHistory: StoredHistory,
  sessions: Sessions<Session>,
): TransportCounts {
  const s = quoted(schema);
  return {
    count: async (key, events, windowMs) => {
      const digest = hash('sha256', key, 'base64url');
      const [row] = await sessions.ask(({ commands }) =>
        commands.query(
          `SELECT * FROM ${s}.count($1, $2, $3, $4)`,
          [storedHistory.stream, digest, events, windowMs],
          { name: `${s} count` },
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
}

function databaseOf(
  schema: string,
  storedHistory: StoredHistory,
  sessions: Sessions<Session>,
  append: GroupAppend,
  caughtUp: () => Promise<void>,
): HistoryDatabase {
  const s = quoted(schema);
  return {
    includes: async (connection) => {
      // Whether two addresses lead to the same database shows what one of them has stored.
      const writer = `joined ${randomUUID()}`;
      const { stream } = storedHistory;
      await sessions.ask(({ commands }) =>
        commands.query(`INSERT INTO ${s}.writers VALUES ($1, $2, 0, 0, now())`, [stream, writer]),
      );
      const rows = await connection.query(
        `DELETE FROM ${s}.writers WHERE stream = $1 AND writer = $2 RETURNING 1`,
        [stream, writer],
      );
      return rows.length > 0;
    },
    appendWith: async (connection, statement, updates) => {
      await append.storeWith(connection, statement, updates);
      // Appends that are faster than the tail would make it miss what is evicted.
      await caughtUp().catch(ignore);
    },
  };
}
