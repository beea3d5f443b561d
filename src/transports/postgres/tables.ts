import { hash } from 'node:crypto';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { type PostgresConnection, faultOf } from '../../postgres/connection.ts';
import { functionsSql } from './functions.ts';
import { presenceSql } from './presence-functions.ts';

/** Version of the tables. Tables with a later version are not touched. */
const FORMAT = 1;

/** An identifier in a statement. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** The channel on which a history announces changes. Names of channels are shorter than those of streams. */
export function channelOf(schema: string, stream: string): string {
  const digest = hash('sha256', JSON.stringify([schema, stream]), 'hex');
  return `hubgate_${digest.slice(0, 40)}`;
}

/** All tables and functions, for a schema that exists. */
function tablesSql(schema: string): string {
  const s = quoted(schema);
  return `
CREATE TABLE ${s}.version (version int NOT NULL);
INSERT INTO ${s}.version VALUES (${FORMAT});

-- A row for each hub. Whoever appends locks it, so positions have no gap, and become visible in their order.
CREATE TABLE ${s}.streams (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  channel text NOT NULL,
  position bigint NOT NULL DEFAULT 0,
  key text NOT NULL DEFAULT '',
  last_id text,
  last_update_id text,
  updates bigint NOT NULL DEFAULT 0,
  events bigint NOT NULL DEFAULT 0,
  evicted_updates bigint NOT NULL DEFAULT 0,
  evicted_events bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- The history. "key" is random, and "previous" is that of the entry before: a lost end is noticed by them.
CREATE TABLE ${s}.entries (
  stream int NOT NULL,
  position bigint NOT NULL,
  at bigint NOT NULL,
  size int NOT NULL,
  presence boolean NOT NULL,
  key text NOT NULL,
  previous text NOT NULL,
  id text COLLATE "C" NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (stream, position)
);
CREATE INDEX entries_by_id ON ${s}.entries (stream, id, position) WHERE octet_length(id) <= 1024;
CREATE INDEX entries_of_presence ON ${s}.entries (stream, position) WHERE presence;

-- The last group of each process: a group whose answer was lost is not stored twice.
CREATE TABLE ${s}.writers (
  stream int NOT NULL,
  writer text COLLATE "C" NOT NULL,
  batch bigint NOT NULL,
  position bigint NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (stream, writer)
) WITH (fillfactor = 50);

-- Signals between the nodes, for example revoked tokens.
CREATE TABLE ${s}.signal_ends (stream int PRIMARY KEY, position bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE ${s}.signals (
  stream int NOT NULL,
  position bigint NOT NULL,
  key text NOT NULL,
  process text NOT NULL,
  message text NOT NULL,
  PRIMARY KEY (stream, position)
);

-- The presence board: the leases of processes, their subscribers, and the lists of matchers.
CREATE TABLE ${s}.processes (
  stream int NOT NULL,
  process text COLLATE "C" NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (stream, process)
) WITH (fillfactor = 50);
CREATE TABLE ${s}.present (
  stream int NOT NULL,
  process text COLLATE "C" NOT NULL,
  subscriber text COLLATE "C" NOT NULL,
  arrival bigint GENERATED ALWAYS AS IDENTITY,
  matchers text[] NOT NULL,
  records text NOT NULL,
  PRIMARY KEY (stream, process, subscriber)
);
CREATE INDEX present_by_arrival ON ${s}.present (stream, arrival);
CREATE INDEX present_by_subscriber ON ${s}.present (stream, subscriber);
CREATE TABLE ${s}.present_matchers (
  stream int NOT NULL,
  matcher text COLLATE "C" NOT NULL,
  arrival bigint NOT NULL,
  PRIMARY KEY (stream, matcher, arrival)
);
-- Arrivals and departures that a process has claimed to announce.
CREATE TABLE ${s}.departures (
  stream int NOT NULL,
  process text COLLATE "C" NOT NULL,
  subscriber text COLLATE "C" NOT NULL,
  name text NOT NULL,
  active boolean NOT NULL,
  records text NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (stream, process, subscriber)
);
CREATE INDEX departures_by_claim ON ${s}.departures (stream, until);

-- Counts of rate_limit. They may be lost with the server, so they are not logged.
CREATE UNLOGGED TABLE ${s}.counts (
  stream int NOT NULL,
  key text COLLATE "C" NOT NULL,
  window_number bigint NOT NULL,
  current double precision NOT NULL,
  previous double precision NOT NULL,
  expires bigint NOT NULL,
  PRIMARY KEY (stream, key)
) WITH (fillfactor = 50);
CREATE INDEX counts_by_expiry ON ${s}.counts (expires);
${functionsSql(s)}${presenceSql(s)}`;
}

/** Everything for operators that do not let programs create tables. */
export function setUpSql(schema: string, role: string): string {
  const [s, r] = [quoted(schema), quoted(role)];
  return `-- The tables of hubgate, version ${FORMAT}. Run this once as the owner of the database:
--   hubgate history init | psql --single-transaction --set ON_ERROR_STOP=1 DATABASE
-- The gateway connects as a role that needs nothing else, for example:
--   CREATE ROLE ${r} LOGIN PASSWORD '...';
CREATE SCHEMA ${s};
${tablesSql(schema)}
GRANT USAGE ON SCHEMA ${s} TO ${r};
GRANT SELECT ON ${s}.version TO ${r};
GRANT SELECT, INSERT, UPDATE, DELETE ON
  ${TABLES.map((table) => `${s}.${table}`).join(', ')} TO ${r};
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ${s} FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ${s} TO ${r};
`;
}

const TABLES = [
  'streams',
  'entries',
  'writers',
  'signal_ends',
  'signals',
  'processes',
  'present',
  'present_matchers',
  'departures',
  'counts',
];

/**
 * Creates the tables unless they exist. Several processes may do so at once.
 *
 * @throws HubgateError `history-too-new`; `transport-failed` if they may not be created
 */
export async function ensureTables(connection: PostgresConnection, schema: string): Promise<void> {
  if (await hasTables(connection, schema)) return;
  try {
    await connection.transaction(async (queries) => {
      await queries.query("SELECT pg_advisory_xact_lock(hashtext('hubgate'), hashtext($1))", [
        schema,
      ]);
      if (await hasTables(queries, schema)) return;
      const [found] = await queries.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [
        schema,
      ]);
      // Even IF NOT EXISTS asks for the right to create it.
      if (found === undefined) await queries.query(`CREATE SCHEMA ${quoted(schema)}`);
      await queries.query(tablesSql(schema));
    });
  } catch (error) {
    if (faultOf(error).state !== '42501') throw error;
    const why = `The tables of the history may not be created (${messageOf(error)}): run hubgate history init, and let the owner of the database execute what it prints`;
    throw new HubgateError('transport-failed', why, { cause: error });
  }
}

/** @throws HubgateError `history-too-new` */
export async function hasTables(
  queries: Pick<PostgresConnection, 'query'>,
  schema: string,
): Promise<boolean> {
  // `to_regclass` may not see in a transaction what others have created since its first statement.
  const text = `SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = 'version'`;
  if ((await queries.query(text, [schema])).length === 0) return false;
  const [row] = await queries.query(`SELECT version FROM ${quoted(schema)}.version`);
  if (Number(row?.['version']) <= FORMAT) return true;
  const message = 'The tables in PostgreSQL were made by a later version of hubgate; run that one';
  throw new HubgateError('history-too-new', message);
}
