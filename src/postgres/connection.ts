// `pg` never reconnects. A connection here is one session with one server, and it is given up as soon as anything about
// it is in doubt. `Sessions` (kernel) opens the next one.

import { readFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { userInfo } from 'node:os';
import type { ConnectionOptions } from 'node:tls';
import pg from 'pg';
import {
  parsePostgresUrl,
  type PostgresAddress,
  type PostgresHost,
} from '../config/postgres-url.ts';
import { afterSilence, type Clock } from '../kernel/clock.ts';
import { HubgateError, messageOf, codeOf, ignore } from '../kernel/error.ts';
import type { Secret } from '../kernel/secret.ts';

/** The location of a database in the configuration. */
export interface PostgresPlace {
  /** `postgres://` or `postgresql://`; see `config/postgres-url.ts` for the parameters. */
  readonly url: Secret;
  /** File with the password, read for each connection; null if it is in the URL, or none is needed. */
  readonly passwordFile: string | null;
  /** PEM file of the authorities that the server is verified with; with it, `sslmode` defaults to `verify-full`. */
  readonly trustPoolFile: string | null;
}

export interface PostgresConnectOptions {
  readonly clock: Clock;
  /** Limit of the server for a statement, in milliseconds; 0 for none. */
  readonly statementTimeoutMs?: number;
}

interface QueryOptions {
  /** The statement is prepared once for each connection under this name. */
  readonly name?: string;
  /** A server that does not answer for this long counts as gone; {@link ANSWER_TIMEOUT_MS} by default. */
  readonly timeoutMs?: number;
}

/** Milliseconds that a server has for an answer, and that a statement may wait for those before it. */
const ANSWER_TIMEOUT_MS = 10_000;
/**
 * Milliseconds that a statement may wait for a lock. A server does not notice that the client of a waiting statement is
 * gone, and has a limited number of connections.
 */
const LOCK_TIMEOUT_MS = 8_000;

/** A row by the names of its columns. `bigint` is a number. */
export type Row = Readonly<Record<string, unknown>>;

/** Runs statements, in the order of the calls. */
export interface Queries {
  /**
   * @throws the error of the server, or the loss of the connection; `faultOf` classifies both. HubgateError
   * `transport-failed` if earlier statements take too long
   */
  query(text: string, values?: readonly unknown[], options?: QueryOptions): Promise<readonly Row[]>;
}

export type PostgresConnection = Readonly<Connection>;

/**
 * Connects to the first host of a URL that accepts connections and has the requested attributes.
 *
 * @throws HubgateError `transport-failed` with the error of each host, `bad-postgres-url`
 */
export async function connectPostgres(
  place: PostgresPlace,
  options: PostgresConnectOptions,
): Promise<PostgresConnection> {
  const address = parsePostgresUrl(place.url.reveal());
  const faults: string[] = [];
  let cause: unknown;
  for (const host of address.hosts) {
    try {
      return await connectHost(address, host, place, options);
    } catch (error) {
      cause = error;
      faults.push(`${shown(host)}: ${messageOf(error)}`);
    }
  }
  const message = `PostgreSQL cannot be reached (${faults.join('; ')})`;
  throw new HubgateError('transport-failed', message, { cause });
}

/** Idle time after which the system asks whether the server is still there. */
const KEEP_ALIVE_MS = 10_000;
/** How long a connection may take to end in order before it is destroyed. */
const CLOSE_TIMEOUT_MS = 1000;
/** A transaction that this process has left open is ended by the server, because others wait for its locks. */
const IDLE_IN_TRANSACTION_MS = 15_000;

async function connectHost(
  address: PostgresAddress,
  host: PostgresHost,
  place: PostgresPlace,
  options: PostgresConnectOptions,
): Promise<PostgresConnection> {
  const tls = await tlsOf(address, host, place);
  let connection: Connection;
  try {
    connection = await Connection.open(address, host, place, tls, options.clock);
  } catch (error) {
    if (!tls.mayBePlain || !/does not support SSL/.test(messageOf(error))) throw error;
    const plain = { mayBePlain: false, ssl: false } as const;
    connection = await Connection.open(address, host, place, plain, options.clock);
  }
  try {
    await prepareSession(connection, address, options);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** Checks that this is the wanted server, and sets up the session unless it is shared. */
async function prepareSession(
  connection: Connection,
  { sessionAttributes, connectTimeoutMs }: PostgresAddress,
  { statementTimeoutMs = 0 }: PostgresConnectOptions,
): Promise<void> {
  const timeoutMs = connectTimeoutMs;
  const [found] = await connection.query(
    `SELECT pg_backend_pid() AS pid, pg_is_in_recovery() AS standby,
      current_setting('transaction_read_only') = 'on' AS read_only,
      current_setting('server_version_num')::int AS version,
      current_setting('server_encoding') AS encoding,
      concat(extract(epoch FROM pg_postmaster_start_time()), ' ', current_database()) AS server`,
    [],
    { timeoutMs },
  );
  const version = Number(found?.['version']);
  if (version < OLDEST_VERSION) {
    throw new Error('this is older than PostgreSQL 13, which is the oldest that works');
  }
  if (found?.['encoding'] !== 'UTF8') {
    throw new Error('the encoding of the database is not UTF8; create one with ENCODING UTF8');
  }
  if (sessionAttributes === 'primary' && found['standby'] === true) {
    throw new Error('this server is a standby');
  }
  if (sessionAttributes === 'read-write' && found['read_only'] === true) {
    throw new Error('this server accepts no writes at the moment');
  }
  connection.isPooled = connection.backend !== found['pid'];
  connection.server = String(found['server']);
  const settings = { client_encoding: 'UTF8', standard_conforming_strings: 'on' };
  const limits = {
    statement_timeout: statementTimeoutMs,
    lock_timeout: LOCK_TIMEOUT_MS,
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
    // With another one, a statement that has waited for a lock would fail instead of seeing what was changed meanwhile.
    default_transaction_isolation: 'read committed',
    // A warning tells that the server has not waited for its standbys.
    client_min_messages: 'warning',
    // A hub may publish nothing for hours.
    ...(version >= FIRST_WITH_IDLE_TIMEOUT && { idle_session_timeout: 0 }),
  };
  // A pooler hands the session with these limits to others. It remembers the first two settings for each client.
  const all = connection.isPooled ? settings : { ...settings, ...limits };
  const lines = Object.entries(all).map(([name, value]) => `SET ${name} = '${value}'`);
  await connection.query(lines.join('; '), undefined, { timeoutMs });
}

const OLDEST_VERSION = 130_000;
const FIRST_WITH_IDLE_TIMEOUT = 140_000;

interface Tls {
  readonly ssl: false | ConnectionOptions;
  readonly mayBePlain: boolean;
}

async function tlsOf(
  address: PostgresAddress,
  { host }: PostgresHost,
  { trustPoolFile }: PostgresPlace,
): Promise<Tls> {
  const written = address.rootCertificateFile;
  const file = trustPoolFile ?? (written === 'system' ? null : written);
  const mode = address.sslMode ?? (trustPoolFile === null ? 'prefer' : 'verify-full');
  if (mode === 'disable' || mode === 'allow' || host.startsWith('/')) {
    return { ssl: false, mayBePlain: false };
  }
  const ssl: ConnectionOptions = {};
  if (file !== null) ssl.ca = await readFile(file, 'utf8');
  if (address.clientCertificateFile !== null) {
    ssl.cert = await readFile(address.clientCertificateFile, 'utf8');
  }
  if (address.clientKeyFile !== null) ssl.key = await readFile(address.clientKeyFile, 'utf8');
  // As in libpq, `require` verifies the chain if the authorities are given.
  const verifiesChain =
    mode === 'verify-full' || mode === 'verify-ca' || (mode === 'require' && file !== null);
  ssl.rejectUnauthorized = verifiesChain;
  if (mode !== 'verify-full') ssl.checkServerIdentity = () => undefined;
  return { ssl, mayBePlain: mode === 'prefer' };
}

/** One session with a server. It never reconnects by itself. */
class Connection implements Queries {
  readonly #client: pg.Client;
  readonly #socket: Socket;
  readonly #clock: Clock;
  #turn: Promise<unknown> = Promise.resolve();
  readonly #asked = new Set<(reason: Error) => void>();
  #isOver = false;
  #reason: string | null = null;
  #lost: (reason: string) => void = () => {};
  #notified: (channel: string, payload: string) => void = () => {};
  /** The server has given up waiting for a standby, and committed nevertheless. */
  #isUnreplicated = false;
  /** A pooler such as PgBouncer is in between, so nothing may be kept in the session. */
  isPooled = false;
  /** Identifies the database on the running server: connections with the same text see the same. */
  server = '';

  private constructor(client: pg.Client, socket: Socket, clock: Clock) {
    this.#client = client;
    this.#socket = socket;
    this.#clock = clock;
    // Without a listener, the process would end.
    client.on('error', (error) => this.#lose(error.message));
    client.on('end', () => this.#lose('the connection is lost'));
    client.on('notification', ({ channel, payload }) => this.#notified(channel, payload ?? ''));
    client.on('notice', ({ routine }) => {
      if (routine === 'SyncRepWaitForLSN') this.#isUnreplicated = true;
    });
  }

  static async open(
    address: PostgresAddress,
    { host, port }: PostgresHost,
    { passwordFile }: PostgresPlace,
    { ssl }: Tls,
    clock: Clock,
  ): Promise<Connection> {
    const socket = new Socket();
    const user = address.user ?? userInfo().username;
    const client = new pg.Client({
      ...{ host, port, user, ssl },
      database: address.database ?? user,
      password: () => passwordOf(address, passwordFile),
      application_name: address.applicationName,
      ...(address.options === null ? {} : { options: address.options }),
      connectionTimeoutMillis: address.connectTimeoutMs,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
      stream: () => socket,
      types,
    });
    const connection = new Connection(client, socket, clock);
    try {
      await client.connect();
      return connection;
    } catch (error) {
      connection.#isOver = true;
      socket.destroy();
      throw error;
    }
  }

  /** Process of the server, as it was named when the session began. */
  get backend(): number | null {
    const { processID } = this.#client as unknown as { readonly processID: number | null };
    return processID;
  }

  get isLost(): boolean {
    return this.#isOver;
  }

  query(
    text: string,
    values?: readonly unknown[],
    options?: QueryOptions,
  ): Promise<readonly Row[]> {
    const since = this.#clock.monotonic();
    return this.#inTurn(() => {
      if (this.#clock.monotonic() - since > ANSWER_TIMEOUT_MS) throw busy();
      return this.#run(text, values, options);
    });
  }

  /** Runs `work` in a transaction. Other statements of this connection wait. */
  transaction<Result>(work: (queries: Queries) => Promise<Result>): Promise<Result> {
    return this.#inTurn(async () => {
      const query: Queries['query'] = (...given) => this.#run(...given);
      await query('BEGIN');
      try {
        const result = await work({ query });
        await query('COMMIT');
        return result;
      } catch (error) {
        // Nothing that is still open may be left to the next transaction.
        if (!this.#isOver) await query('ROLLBACK').catch(() => this.close());
        throw error;
      }
    });
  }

  /** Sets the single listener for notifications. */
  onNotification(listener: (channel: string, payload: string) => void): void {
    this.#notified = listener;
  }

  /** Sets the listener that is called once when the connection is lost; not when it is closed. */
  onLost(listener: (reason: string) => void): void {
    this.#lost = listener;
    if (this.#reason !== null) listener(this.#reason);
  }

  /** Ends the session, and a statement that is being run. */
  close(): void {
    if (this.#isOver) return;
    this.#end('the connection is closed');
    this.#client.end().catch(ignore);
    const stop = this.#clock.after(CLOSE_TIMEOUT_MS, () => this.#socket.destroy());
    this.#socket.once('close', stop);
  }

  /** One statement at a time, because a transaction must not contain those of others. */
  #inTurn<Result>(task: () => Promise<Result>): Promise<Result> {
    const result = this.#turn.then(task);
    this.#turn = result.catch(ignore);
    return result;
  }

  #run(
    text: string,
    values?: readonly unknown[],
    { name, timeoutMs = ANSWER_TIMEOUT_MS }: QueryOptions = {},
  ): Promise<readonly Row[]> {
    return new Promise((resolve, reject) => {
      if (this.#isOver) return reject(new Error(this.#reason ?? 'the connection is closed'));
      this.#asked.add(reject);
      this.#isUnreplicated = false;
      // A network that was cut reports nothing at all.
      const lose = (): void => this.#lose('the server does not answer');
      const stop = afterSilence(timeoutMs, this.#clock, lose);
      // Through a pooler, the next statement may reach another session, without the prepared one.
      const prepared = name === undefined || this.isPooled ? {} : { name };
      const plain = values === undefined ? {} : { values: [...values] };
      this.#client
        .query<Record<string, unknown>>({ text, ...plain, ...prepared })
        .then(({ rows }) => {
          if (this.#isUnreplicated) reject(new Error('the server has not waited for its standbys'));
          else resolve(rows);
        }, reject)
        .finally(() => {
          stop();
          this.#asked.delete(reject);
        });
    });
  }

  #lose(reason: string): void {
    if (this.#isOver) return;
    this.#reason = reason;
    this.#end(reason);
    this.#socket.destroy();
    this.#lost(reason);
  }

  #end(reason: string): void {
    this.#isOver = true;
    for (const reject of this.#asked) reject(new Error(reason));
    this.#asked.clear();
  }
}

function busy(): HubgateError {
  return new HubgateError('transport-failed', 'PostgreSQL is busy with earlier statements');
}

async function passwordOf({ password }: PostgresAddress, file: string | null): Promise<string> {
  if (file !== null) return (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
  if (password !== null) return password;
  throw new Error('the server asks for a password, and none is configured');
}

/** `bigint` as a number, because positions are below 2^53; `pg` gives it as text. */
const types = new pg.TypeOverrides();
types.setTypeParser(pg.types.builtins.INT8, Number);

function shown({ host, port }: PostgresHost): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/**
 * SQLSTATEs after which another connection would do it: the server ends, is a standby now, or its tables have been changed or
 * removed.
 */
const ELSEWHERE = /^(?:08...|0A000|25006|25P03|3F000|42883|42P01|53300|57P0[1-5]|58...)$/;
/** SQLSTATEs of a state that passes: locks, conflicts of transactions, a full disk, too many connections. */
const PASSING = /^(?:08...|0A000|25006|25P03|40...|53...|55...|57...|58...)$/;
/** The server ends while a commit waits for a standby: the commit may be stored. */
const MAY_BE_DONE = /^(?:08...|40003|57P0[1-5])$/;

/** The known facts about a failed query or connection. */
export interface PostgresFault {
  /** What the server says, or why the connection failed; without any secret. */
  readonly message: string;
  /** The SQLSTATE; null if the server has not answered. */
  readonly state: string | null;
  /**
   * `away`: the same may succeed later, on this server or on another. `refused`: it will not, unless somebody changes
   * the statement, the rights or the configuration.
   */
  readonly kind: 'away' | 'refused';
  /** The server reports that the transaction has changed nothing; otherwise that is unknown. */
  readonly isNotDone: boolean;
  /** The connection is of no further use; the next one may lead to another server. */
  readonly isElsewhere: boolean;
}

/** Classifies what `PostgresConnection` and `connectPostgres` throw. */
export function faultOf(error: unknown): PostgresFault {
  const cause = error instanceof HubgateError && error.cause !== undefined ? error.cause : error;
  const code = codeOf(cause);
  const state = code !== undefined && /^[0-9A-Z]{5}$/.test(code) && /\d/.test(code) ? code : null;
  const message = messageOf(error);
  if (state === null) return { message, state, kind: 'away', isNotDone: false, isElsewhere: true };
  return {
    message,
    state,
    kind: PASSING.test(state) ? 'away' : 'refused',
    isNotDone: !MAY_BE_DONE.test(state),
    isElsewhere: ELSEWHERE.test(state),
  };
}
