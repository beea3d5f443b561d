import { blockOf, entryOf, takesCondition } from './block.ts';
import { positionAt } from './position.ts';
import { shortName } from '../../../src/site/placeholder-names.ts';
import { type Entry, type Placeholder, tables } from './tables.ts';

/** What is told of a word of a Hubfile. */
export interface Explanation {
  /** Markdown. */
  readonly text: string;
  /** The heading of docs/hubfile.md that tells more, in lower case. */
  readonly section: string;
  readonly start: number;
  readonly end: number;
}

/** Longer ones are none. */
const LONGEST = 200;
const PLACEHOLDER = /\{\$?\??[A-Za-z_][^\s{}]*\}/g;

/** What there is to tell of the word at an offset; null where there is nothing. */
export function explanationAt(text: string, offset: number): Explanation | null {
  const lineStart = text.lastIndexOf('\n', offset - 1) + 1;
  const end = offset + text.slice(offset).search(/\s|$/);
  const position = positionAt(text, end);
  if (position === null || position.kind === 'comment') return null;
  const line = text.slice(lineStart, end);
  const placeholder = [...line.matchAll(PLACEHOLDER)].find(
    ({ index, 0: found }) =>
      index <= offset - lineStart && offset - lineStart < index + found.length,
  );
  if (placeholder !== undefined) {
    if (placeholder[0].length > LONGEST) return null;
    return ofPlaceholder(placeholder[0], lineStart + placeholder.index);
  }
  const { blocks, words, word, start } = position;
  if (position.kind !== 'word' || word === '' || offset < start) return null;
  const block = blockOf(blocks);
  if (words.length > 0 && !takesCondition(block, words)) return null;
  const entry = entryOf(block, [...words, word]);
  if (entry === undefined) return null;
  return { text: textOf(entry), section: entry.section, start, end };
}

function textOf({ forms, about }: Entry): string {
  return `\`\`\`hubfile\n${forms.join('\n')}\n\`\`\`\n\n${about}`.trim();
}

function ofPlaceholder(written: string, start: number): Explanation | null {
  const found = tables.placeholders.find((each) => matches(each, written));
  if (found === undefined) return null;
  const text = `\`${found.text}\`: ${found.about}\n\n(${found.when})`;
  return { text, section: 'placeholders', start, end: start + written.length };
}

/** A name in capitals stands for any, `N` too; long names of Caddy are known by their short ones. */
function matches({ text }: Placeholder, written: string): boolean {
  const short = written.startsWith('{$') ? written : `{${shortName(written.slice(1, -1))}}`;
  const pattern = text
    .replaceAll(/[.$?*+^()|[\]\\{}]/g, '\\$&')
    .replace(/(?<=\$)VAR/, '[^{}:]+')
    .replaceAll(/(?<=\.)(?:VAR|NAME|PATH|N)(?=[.\\])/g, '[^{}]+')
    .replace(/:default(?=\\\})/, ':[^{}]*');
  return new RegExp(`^${pattern}$`).test(short);
}
