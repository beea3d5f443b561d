import { isBrace, lex, type Lexeme } from './lexer.ts';
import type { Span } from './place.ts';
import { rawRange, type Source, TextProblem } from './source.ts';

/** One word of a line. Only a plain word can be a brace, a matcher or a directive's name. */
export interface Word {
  readonly text: string;
  readonly plain: boolean;
  /** Whether part of it came from a `{$VAR}`, so that problems must not quote it. */
  readonly replaced: boolean;
  readonly span: Span;
}

/** A directive, an option, a site: words, and the lines of its block if it has one. */
export interface Line {
  /** Empty only for the block of global options. */
  readonly words: readonly Word[];
  readonly block: readonly Line[] | null;
  readonly span: Span;
  /** Whether a fault ended the text before the end of its block. */
  readonly unfinished: boolean;
}

/** Everything that could be read of a text. */
export interface Parsed {
  /** The lines before the first fault; the blocks around it are unfinished. */
  readonly lines: readonly Line[];
  /** The faults of the text or its structure; nothing after them was read. */
  readonly faults: readonly TextProblem[];
}

const MAX_DEPTH = 64;

interface OpenBlock {
  readonly words: readonly Word[];
  readonly brace: Lexeme;
  readonly lines: Line[];
}

/** Whether a text contains sites, or directives to be inserted into one. */
export type Content = 'sites' | 'directives';

/**
 * Parses a text to its tree of lines. The `{` of a site may be on the next line, and its addresses may
 * continue after a comma.
 */
export function parse(source: Source, content: Content): Parsed {
  const { lines, fault } = lexedLines(source);
  return new Parser(source, content).parse(lines, fault);
}

/** The words of each line; with a fault, only the lines before the one that contains it. */
function lexedLines(source: Source): { lines: Lexeme[][]; fault: TextProblem | null } {
  const reading = { variables: false };
  try {
    return { lines: linesOf(lex(source.text, reading)), fault: null };
  } catch (thrown) {
    if (!(thrown instanceof TextProblem)) throw thrown;
    const at = rawRange(source, thrown.at, thrown.at + 1).start;
    // A word in place of the unreadable text marks the line that is left out.
    const before = linesOf(lex(`${source.text.slice(0, thrown.at)}_`, reading));
    const fault = new TextProblem(thrown.code, at, thrown.message, thrown.hint);
    return { lines: before.slice(0, -1), fault };
  }
}

class Parser {
  readonly #source: Source;
  readonly #content: Content;
  readonly #top: Line[] = [];
  readonly #open: OpenBlock[] = [];
  /** Addresses without a block: the rest of the text belongs to the site. */
  #braceless: boolean;
  /** The line with these addresses, until another line follows. */
  #addresses: Line | null = null;
  /** The first block whose } has a different indentation. If one is never closed, it is probably this. */
  #suspect: Lexeme | null = null;

  constructor(source: Source, content: Content) {
    this.#source = source;
    this.#content = content;
    this.#braceless = content === 'directives';
  }

  /** @param cut the fault at which the lines end, if they do not end with the text */
  parse(lines: readonly (readonly Lexeme[])[], cut: TextProblem | null): Parsed {
    try {
      this.#read(lines, cut !== null);
    } catch (thrown) {
      if (!(thrown instanceof TextProblem)) throw thrown;
      return { lines: this.#finished(thrown), faults: [thrown, ...(cut === null ? [] : [cut])] };
    }
    if (cut !== null) return { lines: this.#finished(cut), faults: [cut] };
    const unclosed = this.#open.at(-1);
    if (unclosed === undefined) return { lines: this.#top, faults: [] };
    const opening = this.#suspect ?? unclosed.brace;
    const hint = 'close it with a } on a line of its own';
    const fault = this.#fault(
      'unclosed-block',
      opening,
      'the block opened here is not closed',
      hint,
    );
    const again = new Parser(this.#source, this.#content);
    again.#read(this.#linesInside(opening, lines), true);
    return { lines: again.#finished(fault), faults: [fault] };
  }

  /** @throws {TextProblem} at the first position with a broken structure. */
  #read(lines: readonly (readonly Lexeme[])[], isCut: boolean): void {
    let pending: Lexeme[] = [];
    for (const line of lines) {
      for (const lexeme of line) pending.push(lexeme);
      if (this.#endsWithComma(pending)) continue;
      this.#line(pending);
      pending = [];
    }
    if (pending.length > 0 && !isCut) this.#line(pending);
  }

  /** The lines up to the probable end of a block that is never closed, according to the indentation. */
  #linesInside(opening: Lexeme, lines: readonly (readonly Lexeme[])[]): readonly Lexeme[][] {
    const outer = this.#indentation(opening).length;
    const end = lines.findIndex(
      ([first]) =>
        first !== undefined &&
        first.start > opening.start &&
        this.#indentation(first).length <= outer,
    );
    return (end === -1 ? lines : lines.slice(0, end)).map((line) => [...line]);
  }

  /** The lines before a fault. */
  #finished(fault: TextProblem): Line[] {
    const wasOpen = this.#open.length > 0;
    for (let block = this.#open.pop(); block !== undefined; block = this.#open.pop()) {
      this.#add(block.words, block.lines, block.brace, true);
    }
    const lines = this.#top;
    if (this.#content === 'directives') return lines;
    const bare = lines.findIndex((line) => line.block === null && line.words[0]?.text !== 'import');
    const isAfterSite = bare > 0 && lines.slice(0, bare).some(isSite);
    // These may have been meant for the site above, or for one whose { is still to come.
    if (isAfterSite) lines.splice(bare);
    // Either the whole text is one site, or an additional } closed the last one too early.
    const broken = bare !== -1 && !isAfterSite ? bare : lines.length - 1;
    const isTooEarly = !wasOpen && fault.code === 'unexpected-brace';
    if (broken === bare || isTooEarly) {
      return lines.map((line, index) => (index === broken ? { ...line, unfinished: true } : line));
    }
    return lines;
  }

  #endsWithComma(line: readonly Lexeme[]): boolean {
    if (this.#open.length > 0 || this.#braceless || line[0]?.text === 'import') return false;
    const last = line.at(-1);
    return last?.kind === 'plain' && last.text.endsWith(',');
  }

  #line(line: readonly Lexeme[]): void {
    const [first] = line;
    if (first === undefined) return;
    this.#checkBraces(line);
    if (isBrace(first, '}')) return this.#close(first);
    const last = line.at(-1);
    if (last === undefined || !isBrace(last, '{')) return this.#add(this.#words(line), null);
    if (this.#open.length >= MAX_DEPTH) {
      throw this.#fault('too-deep', last, `blocks are nested more than ${MAX_DEPTH} deep`);
    }
    const words = line.length === 1 ? this.#headOfBlock(last) : this.#words(line.slice(0, -1));
    this.#open.push({ words, brace: last, lines: [] });
  }

  /** A `{` on a line of its own belongs to the addresses above it, or opens the global options. */
  #headOfBlock(brace: Lexeme): readonly Word[] {
    if (this.#open.length > 0) throw this.#separateBrace(brace);
    const above = this.#top.at(-1);
    if (above === undefined || above.block !== null || above.words[0]?.text === 'import') return [];
    if (above !== this.#addresses) throw this.#separateBrace(brace);
    this.#top.pop();
    this.#braceless = false;
    return above.words;
  }

  #separateBrace(brace: Lexeme): TextProblem {
    // The line above is missing its block, which is not a separate mistake.
    (this.#open.at(-1)?.lines ?? this.#top).pop();
    const hint = 'only a site may have its { on the next line';
    return this.#fault('misplaced-brace', brace, '{ must end the line of its directive', hint);
  }

  #close(brace: Lexeme): void {
    const block = this.#open.pop();
    if (block === undefined) {
      const hint = 'is a { missing above, or is this } one too many?';
      throw this.#fault('unexpected-brace', brace, 'this } closes no block', hint);
    }
    if (this.#indentation(brace) !== this.#indentation(block.brace)) this.#suspect ??= block.brace;
    this.#add(block.words, block.lines, block.brace);
  }

  #indentation({ start }: Lexeme): string {
    const { text } = this.#source;
    const line = text.slice(text.lastIndexOf('\n', start - 1) + 1, start);
    return line.slice(0, line.length - line.trimStart().length);
  }

  #add(
    words: readonly Word[],
    block: readonly Line[] | null,
    brace?: Lexeme,
    unfinished = false,
  ): void {
    const span = words[0]?.span ?? (brace === undefined ? undefined : this.#span(brace));
    if (span === undefined) return;
    const parent = this.#open.at(-1);
    const line = { words, block, span, unfinished };
    (parent?.lines ?? this.#top).push(line);
    if (parent !== undefined || block !== null || words[0]?.text === 'import') return;
    this.#addresses = this.#braceless ? null : line;
    this.#braceless = true;
  }

  #checkBraces(line: readonly Lexeme[]): void {
    for (const [index, lexeme] of line.entries()) {
      if (lexeme.kind !== 'plain') continue;
      const isLast = index === line.length - 1;
      if (lexeme.text === '{' && !isLast) {
        const after = line[index + 1] ?? lexeme;
        const message = '{ must end its line';
        throw this.#fault(
          'misplaced-brace',
          after,
          message,
          'start a new line here, or quote the {',
        );
      }
      if (isBrace(lexeme, '}') && line.length > 1) {
        const hint = 'put it on its own line, or quote it';
        throw this.#fault('misplaced-brace', lexeme, '} must stand alone on its line', hint);
      }
      if (index === 0 && lexeme.text.length > 1 && lexeme.text.startsWith('}')) {
        const hint = 'put each } on its own line';
        throw this.#fault('misplaced-brace', lexeme, '} must stand alone on its line', hint);
      }
      if (isLast && lexeme.text === '{}') {
        const hint = 'remove the empty block, or quote the braces';
        throw this.#fault('misplaced-brace', lexeme, '{} is not a block', hint);
      }
      if (isLast && lexeme.text.length > 1 && lexeme.text.endsWith('{')) {
        const hint = 'put a space before the {, or quote the word';
        throw this.#fault('misplaced-brace', lexeme, 'a block needs a space before its {', hint);
      }
    }
  }

  #words(line: readonly Lexeme[]): Word[] {
    return line.map((lexeme) => {
      const { replaced, ...range } = rawRange(this.#source, lexeme.start, lexeme.end);
      return {
        text: lexeme.text,
        plain: lexeme.kind === 'plain',
        replaced,
        span: { source: this.#source, ...range, via: null },
      };
    });
  }

  #span(lexeme: Lexeme): Span {
    const { start, end } = rawRange(this.#source, lexeme.start, lexeme.end);
    return { source: this.#source, start, end, via: null };
  }

  #fault(code: string, lexeme: Lexeme, message: string, hint?: string): TextProblem {
    return new TextProblem(code, this.#span(lexeme).start, message, hint);
  }
}

/** Neither the options nor a snippet. */
function isSite({ words: [first], block }: Line): boolean {
  return first !== undefined && block !== null && !/^\(.*\)$/.test(first.text);
}

/** The words of each logical line. Comments are removed, but they still end their lines. */
export function linesOf(lexemes: readonly Lexeme[]): Lexeme[][] {
  const lines: Lexeme[][] = [];
  let ended = true;
  for (const lexeme of lexemes) {
    if (lexeme.newlines > 0) ended = true;
    if (lexeme.kind === 'comment') continue;
    if (ended) lines.push([]);
    lines.at(-1)?.push(lexeme);
    ended = false;
  }
  return lines;
}
