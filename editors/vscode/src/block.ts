import { type Entry, entryIn, optionsOf, type Table, tables } from './tables.ts';

/** What the lines of a block are: the top of a file, entries of a table, or anything. */
export type Block =
  | { readonly kind: 'top' }
  | { readonly kind: 'entries'; readonly table: Table; readonly matchers: boolean }
  | { readonly kind: 'free' };

const SITE: Block = { kind: 'entries', table: tables.directives, matchers: true };
const FREE: Block = { kind: 'free' };

/** What may stand in the innermost of some open blocks. */
export function blockOf(blocks: readonly (readonly string[])[]): Block {
  const [outermost, ...others] = blocks;
  if (outermost === undefined) return { kind: 'top' };
  const top: Block =
    outermost.length === 0 ? { kind: 'entries', table: tables.globals, matchers: false } : SITE;
  return others.reduce(inside, top);
}

function inside(block: Block, words: readonly string[]): Block {
  if (block.kind !== 'entries') return FREE;
  const entry = entryOf(block, words);
  if (words[0] === 'import') return SITE;
  if (entry === undefined) return FREE;
  const table = optionsOf(entry, words);
  return table === null ? FREE : { kind: 'entries', table, matchers: table === tables.directives };
}

/** The entry that a line of a block is about: of a matcher, the last condition that is named. */
export function entryOf(block: Block, words: readonly string[]): Entry | undefined {
  const [name = ''] = words;
  if (block.kind !== 'entries') return undefined;
  const isMatcher = block.matchers && name.startsWith('@');
  if (!isMatcher && block.table !== tables.conditions) return entryIn(block.table, name);
  const conditions = isMatcher ? words.slice(1) : words;
  if (conditions.length === 0) return NAMED_MATCHER;
  const negated = conditions[0] === 'not' && conditions.length > 1;
  return entryIn(tables.conditions, conditions[negated ? 1 : 0] ?? '');
}

/** Whether the word behind some is the name of a condition. */
export function takesCondition(block: Block, words: readonly string[]): boolean {
  if (block.kind !== 'entries') return false;
  const isMatcher = block.matchers && words[0]?.startsWith('@') === true;
  if (!isMatcher && block.table !== tables.conditions) return false;
  const conditions = isMatcher ? words.slice(1) : words;
  return conditions.length === 0 || (conditions.length === 1 && conditions[0] === 'not');
}

const NAMED_MATCHER: Entry = {
  forms: ['@<name> <condition>'],
  about: 'a matcher of this name; with a block all of its conditions must hold',
  section: 'matchers',
  holds: 'conditions',
};
