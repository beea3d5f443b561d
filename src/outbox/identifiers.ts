import { HubgateError } from '../kernel/error.ts';

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
export function quoted(name: string): string {
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
