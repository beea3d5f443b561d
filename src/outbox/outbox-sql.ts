import { hash } from 'node:crypto';
import { HubgateError } from '../kernel/error.ts';

/** The tables of an outbox, and who may use them. */
export interface OutboxTables {
  /** Name of the table, possibly with its schema. */
  readonly table: string;
  /** Roles that insert rows, and the role of the gateway; null if the owner does it. */
  readonly writers: readonly string[];
  readonly reader: string | null;
}

/** A trigger that announces the rows of a table. */
export interface AnnouncedTable {
  readonly table: string;
  /** Templates with columns in braces, such as `/books/{id}`. The first is the canonical topic. */
  readonly topics: readonly string[];
  readonly private: boolean;
  readonly type: string | null;
  readonly outbox: string;
}

/** Most topics of a row: each is a topic before and after an update. */
const MAX_TOPICS = 16;

/** The channel on which new rows of an outbox are announced: the same for a table in any schema. */
export function channelOf(table: string): string {
  const digest = hash('sha256', nameIn(identifiers(table)), 'hex');
  return `hubgate_outbox_${digest.slice(0, 32)}`;
}

/**
 * The statements that create an outbox. They can be repeated.
 *
 * @throws HubgateError `bad-table-name`
 */
export function outboxSql({ table, writers, reader }: OutboxTables): string {
  const name = inSchema(table);
  const outbox = quotedTable(name);
  const dead = quotedTable(deadLettersOf(name));
  const notify = quotedTable(beside(name, `${nameIn(name)}_notify`));
  const encode = encoderOf(name);
  const columns = 'id, topic, topics, data, private, type, retry';
  const grants = [
    ...writers.map((role) => `GRANT INSERT (${columns}) ON ${outbox} TO ${quoted(role)};`),
    ...(reader === null
      ? []
      : [
          `GRANT SELECT, DELETE ON ${outbox} TO ${quoted(reader)};`,
          `GRANT SELECT, INSERT, DELETE ON ${dead} TO ${quoted(reader)};`,
        ]),
  ];
  return `-- The outbox of hubgate: a row becomes an update if, and only if, its transaction commits.
-- Anyone who may insert rows may publish what "topics" in the Hubfile accepts.
BEGIN;
SET LOCAL client_min_messages = warning;

CREATE TABLE IF NOT EXISTS ${outbox} (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  id text NOT NULL DEFAULT 'urn:uuid:' || gen_random_uuid(),
  topic text,
  topics text[],
  data text NOT NULL DEFAULT '',
  private boolean NOT NULL DEFAULT false,
  type text,
  retry bigint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Rows that cannot be published, with the reason. To try one again, insert it into the outbox.
CREATE TABLE IF NOT EXISTS ${dead} (
  nr bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  reason text NOT NULL,
  seq bigint NOT NULL,
  created_at timestamptz NOT NULL,
  id text,
  topic text,
  topics text[],
  data text,
  private boolean,
  type text,
  retry bigint
);

CREATE OR REPLACE FUNCTION ${notify}() RETURNS trigger LANGUAGE plpgsql AS $hubgate$
BEGIN
  PERFORM pg_catalog.pg_notify(${literal(channelOf(table))}, '');
  RETURN NULL;
END
$hubgate$;
DROP TRIGGER IF EXISTS hubgate_notify ON ${outbox};
CREATE TRIGGER hubgate_notify AFTER INSERT ON ${outbox}
  FOR EACH STATEMENT EXECUTE FUNCTION ${notify}();

-- A value as part of a topic: everything but letters, digits and -._~ is percent-encoded (RFC 6570, {value}).
CREATE OR REPLACE FUNCTION ${encode}(value text) RETURNS text
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $hubgate$
  SELECT coalesce(string_agg(
    CASE WHEN byte BETWEEN 48 AND 57 OR byte BETWEEN 65 AND 90 OR byte BETWEEN 97 AND 122 OR byte IN (45, 46, 95, 126)
      THEN chr(byte) ELSE '%' || upper(lpad(to_hex(byte), 2, '0')) END, '' ORDER BY place), '')
  FROM (SELECT convert_to(value, 'UTF8') AS bytes) AS whole,
    LATERAL generate_series(0, length(bytes) - 1) AS place,
    LATERAL get_byte(bytes, place) AS byte
$hubgate$;
${grants.length === 0 ? '' : `\n${grants.join('\n')}\n`}
COMMIT;
`;
}

/**
 * The statements that create a trigger. It runs with the rights of the role that creates it, so a role that writes to the
 * table needs none for the outbox, and cannot publish anything else.
 *
 * @throws HubgateError `bad-table-name`, `bad-topic-template`
 */
export function triggerSql(announced: AnnouncedTable): string {
  const { topics, private: isPrivate, type } = announced;
  const name = identifiers(announced.table);
  const outboxName = inSchema(announced.outbox);
  const outbox = quotedTable(outboxName);
  const table = quotedTable(name);
  const step = quotedTable(beside(outboxName, `${nameIn(outboxName)}_of_${name.join('_')}`));
  if (topics.length === 0) throw badTemplate('', 'there is none');
  if (topics.length > MAX_TOPICS) throw badTemplate('', `there are more than ${MAX_TOPICS}`);
  const encode = encoderOf(outboxName);
  const list = (row: 'OLD' | 'NEW'): string =>
    topics.map((template) => `      ${topicExpression(template, row, encode)}`).join(',\n');
  const body = `
DECLARE
  announced text[] := '{}';
BEGIN
  -- Binary images, because not every type has an equality.
  IF TG_OP = 'UPDATE' THEN
    IF NOT OLD OPERATOR(pg_catalog.*<>) NEW THEN RETURN NULL; END IF;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    announced := announced || ARRAY[
${list('OLD')}
    ];
  END IF;
  IF TG_OP <> 'DELETE' THEN
    announced := ARRAY[
${list('NEW')}
    ] || announced;
  END IF;
  -- Each topic once, in this order; none for a column without a value.
  SELECT array_agg(topic ORDER BY place) INTO announced FROM (
    SELECT topic, min(place) AS place FROM unnest(announced) WITH ORDINALITY AS one(topic, place)
    WHERE topic IS NOT NULL GROUP BY topic
  ) AS each_once;
  IF announced IS NULL THEN RETURN NULL; END IF;
  INSERT INTO ${outbox} (topics, data, private, type) VALUES (
    announced,
    json_build_object('url', announced[1], 'operation', lower(TG_OP))::text,
    ${isPrivate ? 'true' : 'false'},
    ${type === null ? 'NULL' : literal(type)}
  );
  RETURN NULL;
END
`;
  const tag = tagFor(body);
  const columns = columnsOf(topics);
  return `-- Announces the rows of ${oneLine(announced.table)} when they are inserted, updated or deleted. TRUNCATE is not announced.
BEGIN;
SET LOCAL client_min_messages = warning;
CREATE OR REPLACE FUNCTION ${step}() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS ${tag}${body}${tag};
-- Otherwise anyone could attach it to a table of their own.
REVOKE ALL ON FUNCTION ${step}() FROM PUBLIC;
-- Fails here, and not when the app writes, if there is no such column.
DO ${tagFor(columns)} BEGIN PERFORM ${columns} FROM ${table} LIMIT 0; END ${tagFor(columns)};
DROP TRIGGER IF EXISTS hubgate_announce ON ${table};
CREATE TRIGGER hubgate_announce AFTER INSERT OR UPDATE OR DELETE ON ${table}
  FOR EACH ROW EXECUTE FUNCTION ${step}();
COMMIT;
`;
}

/** `/books/{id}` as an expression of SQL; without a value if one of the columns has none. */
function topicExpression(template: string, row: 'OLD' | 'NEW', encode: string): string {
  const parts = template.split(/\{([^{}]*)\}/);
  const literals = parts.filter((_, index) => index % 2 === 0);
  if (template === '') throw badTemplate(template, 'it is empty');
  if (literals.some((text) => /[{}]/.test(text))) throw badTemplate(template, 'a brace is alone');
  if (/\p{Cc}/u.test(template)) throw badTemplate(template, 'it has a control character');
  const pieces = parts.flatMap((part, index) => {
    if (index % 2 === 0) return part === '' ? [] : [literal(part)];
    if (part === '') throw badTemplate(template, 'a column has no name');
    return [`${encode}(${row}.${quoted(part)}::text)`];
  });
  return pieces.join(' || ');
}

function columnsOf(topics: readonly string[]): string {
  const names = topics.flatMap((template) =>
    [...template.matchAll(/\{([^{}]*)\}/g)].map(([, column = '']) => quoted(column)),
  );
  return names.length === 0 ? '1' : [...new Set(names)].join(', ');
}

function encoderOf(outbox: TableName): string {
  return quotedTable(beside(outbox, `${nameIn(outbox)}_encode`));
}

/** Something in the same schema as a table. */
function beside(name: TableName, other: string): TableName {
  return name.length === 1 ? [shortened(other)] : [name[0], shortened(other)];
}

/** PostgreSQL cuts off longer names, and two could become one. */
function shortened(name: string): string {
  if (Buffer.byteLength(name) <= 63) return name;
  const digest = hash('sha256', name, 'hex').slice(0, 12);
  let start = name;
  while (Buffer.byteLength(start) > 50) start = start.slice(0, -1);
  return `${start}_${digest}`;
}

/** The functions must find the tables whatever the search path is. */
function inSchema(table: string): TableName {
  const name = identifiers(table);
  return name.length === 1 ? ['public', name[0]] : name;
}

function nameIn(name: TableName): string {
  return name.length === 1 ? name[0] : name[1];
}

/** A tag of a quoted text that the text does not contain. */
function tagFor(body: string): string {
  for (let attempt = 0; ; attempt += 1) {
    const tag = attempt === 0 ? '$hubgate$' : `$hubgate${attempt}$`;
    if (!body.includes(tag)) return tag;
  }
}

/** For a comment. */
function oneLine(text: string): string {
  return text.replace(/\p{Cc}/gu, ' ');
}

function badTemplate(template: string, why: string): HubgateError {
  const message = `"${template.slice(0, 80)}" is not a topic for rows: ${why}; write /books/{id} with columns in braces`;
  return new HubgateError('bad-topic-template', message);
}

/** The name of a table: its own, or that of its schema before it. */
export type TableName = readonly [table: string] | readonly [schema: string, table: string];

/** Most bytes of an identifier of PostgreSQL. A longer one would be cut off without a word. */
const MAX_BYTES = 63;
/** What is added to the name of an outbox for its dead letters. */
const DEAD = '_dead';

/**
 * Reads the name of a table, `name` or `schema.name`, with upper and lower case as in the database. A part in quotes
 * may contain dots; two quotes in it stand for one.
 *
 * @throws HubgateError `bad-table-name`
 */
export function identifiers(text: string): TableName {
  const parts = text.match(/"(?:[^"]|"")*"|[^."]+|\./g) ?? [];
  const [first, dot, second, more] = parts;
  const isWhole = parts.join('') === text && more === undefined;
  if (isWhole && first !== undefined && first !== '.' && dot === undefined) return [plain(first)];
  if (isWhole && first !== undefined && first !== '.' && dot === '.' && second !== undefined) {
    return [plain(first), plain(second)];
  }
  throw badName(text);
}

/** The table of the rows that cannot be published. */
export function deadLettersOf(name: TableName): TableName {
  const [first, second] = name;
  return second === undefined ? [plain(`${first}${DEAD}`)] : [first, plain(`${second}${DEAD}`)];
}

/** An identifier in a statement. */
function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function quotedTable(name: TableName): string {
  return name.map(quoted).join('.');
}

/** A text in a statement. */
export function literal(text: string): string {
  const doubled = text.replaceAll("'", "''");
  // With backslashes it means the same whatever standard_conforming_strings says.
  return text.includes('\\') ? `E'${doubled.replaceAll('\\', '\\\\')}'` : `'${doubled}'`;
}

function plain(part: string): string {
  const name = part.startsWith('"') ? part.slice(1, -1).replaceAll('""', '"') : part;
  if (name === '' || name.includes('\0') || Buffer.byteLength(name) > MAX_BYTES)
    throw badName(part);
  return name;
}

function badName(text: string): HubgateError {
  return new HubgateError(
    'bad-table-name',
    `"${text.slice(0, 80)}" is not the name of a table: write name or schema.name, each of at most ${MAX_BYTES} bytes`,
  );
}
