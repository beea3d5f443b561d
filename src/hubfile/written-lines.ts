import { isBrace, type Lexeme, lex } from './lexer.ts';
import type { DirectiveTable } from './directive-table.ts';
import { linesOf } from './parser.ts';

/** A line of a text as it is written, with its block, for changes in place. */
export interface WrittenLine {
  /** Offsets of its first character, and after its last one: the `}` of its block if it has one. */
  readonly start: number;
  readonly end: number;
  readonly words: readonly Lexeme[];
  /** Offset after the `{` of its block; for a site without braces, after its addresses. */
  readonly blockStart: number | null;
  readonly inner: readonly WrittenLine[];
  readonly outer: WrittenLine | null;
}

/**
 * The lines of a text with a valid structure; `{$VAR}` stays as a word.
 * @throws {TextProblem} as {@link lex}
 */
export function writtenLines(text: string, table: DirectiveTable): readonly WrittenLine[] {
  const top: Draft[] = [];
  let open: Draft | null = null;
  for (const words of lexedLines(text)) {
    const siblings: Draft[] = open?.inner ?? top;
    const [first] = words;
    const last = words.at(-1);
    if (first === undefined || last === undefined) continue;
    if (open !== null && isBrace(first, '}')) {
      open.end = first.end;
      open = open.outer;
    } else if (words.length === 1 && isBrace(first, '{') && isHead(siblings.at(-1), open)) {
      open = siblings.at(-1) ?? null;
      if (open !== null) open.blockStart = first.end;
    } else {
      const opens = isBrace(last, '{');
      const line: Draft = {
        start: first.start,
        end: last.end,
        words: opens ? words.slice(0, -1) : words,
        blockStart: opens ? last.end : null,
        inner: [],
        outer: open,
      };
      siblings.push(line);
      if (opens) open = line;
    }
  }
  return withBracelessSite(top, table);
}

/** The lines below an address without a block are those of its site. */
function withBracelessSite(top: Draft[], table: DirectiveTable): readonly WrittenLine[] {
  const at = top.findIndex((line, index) => {
    const next = top[index + 1];
    const isAddress = line.blockStart === null && line.words[0]?.text !== 'import';
    return isAddress && next !== undefined && startsSiteLine(nameOf(next), table);
  });
  const site = top[at];
  if (site === undefined) return top;
  const inner = top.slice(at + 1);
  for (const line of inner) line.outer = site;
  site.blockStart = site.end;
  site.end = inner.at(-1)?.end ?? site.end;
  site.inner = inner;
  return top.slice(0, at + 1);
}

function startsSiteLine(name: string, table: DirectiveTable): boolean {
  return name === 'import' || name.startsWith('@') || table.isDirective(name);
}

type Draft = {
  -readonly [Name in keyof WrittenLine]: Name extends 'inner'
    ? Draft[]
    : Name extends 'outer'
      ? Draft | null
      : WrittenLine[Name];
};

/** The `{` of addresses may be on the next line. */
function isHead(line: Draft | undefined, open: Draft | null): boolean {
  return open === null && line?.blockStart === null && line.words[0]?.text !== 'import';
}

/** Addresses that end with a comma go on in the next line. */
function lexedLines(text: string): Lexeme[][] {
  const lines: Lexeme[][] = [];
  let depth = 0;
  for (const line of linesOf(lex(text, { variables: true }))) {
    const last = lines.at(-1)?.at(-1);
    const goesOn = depth === 0 && last?.kind === 'plain' && last.text.endsWith(',');
    if (goesOn) lines.at(-1)?.push(...line);
    else lines.push(line);
    for (const word of line) depth += isBrace(word, '{') ? 1 : isBrace(word, '}') ? -1 : 0;
  }
  return lines;
}

/** Its first word, unless it is quoted: the name of a directive or an option. */
export function nameOf({ words: [first] }: WrittenLine): string {
  return first?.kind === 'plain' ? first.text : '';
}

/** The block of global options. */
export function optionsOf(lines: readonly WrittenLine[]): WrittenLine | undefined {
  return lines.find(({ words }) => words.length === 0);
}

/** The innermost line at an offset. */
export function lineAt(lines: readonly WrittenLine[], at: number): WrittenLine | undefined {
  const found = lines.find(({ start, end }) => start <= at && at < end);
  return found === undefined ? undefined : (lineAt(found.inner, at) ?? found);
}
