import { blockOf, entryOf, takesCondition } from './block.ts';
import { positionAt } from './position.ts';
import { type Entry, type Table, tables } from './tables.ts';

/** What may stand at an offset. */
export interface Suggestion {
  readonly label: string;
  readonly kind:
    | 'directive'
    | 'option'
    | 'condition'
    | 'matcher'
    | 'placeholder'
    | 'value'
    | 'form';
  /** How it is written. */
  readonly detail: string;
  /** Markdown. */
  readonly about: string;
  /** With `$0` where the writing goes on, if it is not just the label. */
  readonly snippet?: string;
  /** Where that which it replaces begins. */
  readonly start: number;
}

/** What is offered at the top of a file. */
const FORMS: readonly Omit<Suggestion, 'start'>[] = [
  form('global options', '{\n\t$0\n}', 'the block of global options, first in the file'),
  form('site', '${1:example.com} {\n\t$0\n}', 'a site: its addresses, and its directives'),
  form('snippet', '(${1:name}) {\n\t$0\n}', 'lines that `import` puts elsewhere'),
  form('route', '&(${1:name}) {\n\t$0\n}', 'directives that `invoke` runs'),
  form('import', 'import $0', 'puts in a file, all files of a pattern, or a snippet'),
];

function form(label: string, snippet: string, about: string): Omit<Suggestion, 'start'> {
  return { label, kind: 'form', detail: '', about, snippet };
}

/** What may be written at an offset of a Hubfile, in the order of the running gateway. */
export function suggestionsAt(text: string, offset: number): readonly Suggestion[] {
  const position = positionAt(text, offset);
  if (position === null || position.kind === 'comment') return [];
  const { words, word, start } = position;
  const brace = word.lastIndexOf('{');
  if (brace !== -1 && !word.slice(brace).includes('}')) return placeholders(start + brace);
  if (position.kind === 'quoted') return [];
  const block = blockOf(position.blocks);
  if (words.length === 0) {
    if (block.kind === 'free') return [];
    if (block.kind === 'top') return FORMS.map((each) => ({ ...each, start }));
    const kind = kindOf(block.table);
    return entries(block.table, kind, start);
  }
  if (block.kind !== 'entries') return [];
  if (takesCondition(block, words)) return entries(tables.conditions, 'condition', start);
  if (word.startsWith('@')) return namedMatchers(text, start);
  return values(entryOf(block, words), words, start);
}

function kindOf(table: Table): Suggestion['kind'] {
  if (table === tables.directives) return 'directive';
  return table === tables.conditions ? 'condition' : 'option';
}

function entries(table: Table, kind: Suggestion['kind'], start: number): Suggestion[] {
  return Object.entries(table).map(([label, { forms, about }]) => ({
    ...{ label, kind, about, start },
    detail: forms[0] ?? '',
  }));
}

function placeholders(start: number): Suggestion[] {
  return tables.placeholders.map(({ text, when, about }) => {
    const name = /(?<=[.$])[A-Z]+|(?<=\.)N(?=\})/.exec(text);
    const stop = name === null ? {} : { snippet: withStop(text, name.index, name[0]) };
    return { label: text, kind: 'placeholder', detail: when, about, start, ...stop };
  });
}

/** A `$` or `}` of the text is none of the snippet's. */
function withStop(text: string, at: number, name: string): string {
  const plain = (part: string) => part.replaceAll(/[$}]/g, '\\$&');
  return `${plain(text.slice(0, at))}\${1:${name}}${plain(text.slice(at + name.length))}`;
}

const DEFINITION = /^[^\S\n]*(@[^\s{}]+)[^\S\n]+(.*)$/gm;

function namedMatchers(text: string, start: number): Suggestion[] {
  const found = new Map<string, string>();
  // A line that only begins with the name of a matcher defines it.
  for (const [, name = '', rest = ''] of text.matchAll(DEFINITION)) {
    if (!found.has(name)) found.set(name, rest.trim());
  }
  return [...found].map(([label, detail]) => ({
    ...{ label, detail, start },
    kind: 'matcher',
    about: 'a matcher of this file',
  }));
}

/** The words of its usage that may be written as they are. */
function values(
  entry: Entry | undefined,
  words: readonly string[],
  start: number,
): readonly Suggestion[] {
  if (entry === undefined) return [];
  // Of a named matcher the condition is the second word.
  const at = words[0]?.startsWith('@') === true ? words.length - 1 : words.length;
  const found = entry.forms.flatMap((each) => literals(each, at).map((label) => ({ label, each })));
  const labels = new Map(found.map(({ label, each }) => [label, each]));
  return [...labels].map(([label, detail]) => ({
    ...{ label, detail, start, about: entry.about },
    kind: 'value',
  }));
}

/** Of the word of a form at a place, a matcher not counted. */
function literals(usage: string, at: number): string[] {
  const parts = usage.replaceAll(/<[^>]*>/g, '<>').split(' ');
  const word = parts.filter((part) => part !== '[<>]' && part !== '[@<>]')[at] ?? '';
  return word
    .replaceAll(/[[\]…]/g, '')
    .split('|')
    .filter((each) => /^[a-z0-9][a-z0-9_./-]*$/i.test(each));
}
