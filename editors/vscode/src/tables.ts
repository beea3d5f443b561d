import data from '../tables.json' with { type: 'json' };

/** A directive, an option or a condition, as `npm run directive-tables` has it of the program. */
export interface Entry {
  /** How it is written, a line for each form, without its block. */
  readonly forms: readonly string[];
  /** Markdown. */
  readonly about: string;
  /** The heading of docs/hubfile.md, in lower case. */
  readonly section: string;
  /** `directives` or `conditions`. */
  readonly holds?: string;
  readonly options?: Table;
  /** Options of a form by the word that makes it: those of `transport lmdb` by `lmdb`. */
  readonly variants?: Readonly<Record<string, Table>>;
}

export type Table = Readonly<Record<string, Entry>>;

export interface Placeholder {
  readonly text: string;
  readonly when: string;
  readonly about: string;
}

interface Tables {
  readonly directives: Table;
  readonly globals: Table;
  readonly conditions: Table;
  readonly placeholders: readonly Placeholder[];
}

export const tables: Tables = data;

/** An own member of a table, whatever a file calls its options. */
export function entryIn(table: Table, name: string): Entry | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

/** What a block with these words may hold; null where anything may stand. */
export function optionsOf(entry: Entry, words: readonly string[]): Table | null {
  if (entry.holds === 'directives') return tables.directives;
  if (entry.holds === 'conditions') return tables.conditions;
  const variant = words
    .slice(1)
    .map((word) => entry.variants?.[word])
    .find((each) => each !== undefined);
  if (variant !== undefined) return { ...entry.options, ...variant };
  if (entry.options !== undefined) return entry.options;
  const all = Object.values(entry.variants ?? {});
  return all.length === 0 ? null : Object.assign({}, ...all);
}
