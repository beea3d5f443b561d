import { type Lexeme, lex } from './lexer.ts';
import type { Span } from './place.ts';
import { type Source, SourceFault, rawRange } from './source.ts';

/** One word of a line. Only a plain word can be a brace, a matcher or a directive's name. */
export interface Word {
  readonly text: string;
  readonly plain: boolean;
  /** Part of it came from a `{$VAR}`; problems must not quote it. */
  readonly replaced: boolean;
  readonly span: Span;
}

/** A directive, an option, a site: words, and the lines of its block if it has one. */
export interface Line {
  /** Empty only for the block of global options. */
  readonly words: readonly Word[];
  readonly block: readonly Line[] | null;
  readonly span: Span;
}

const MAX_DEPTH = 64;

interface OpenBlock {
  readonly words: readonly Word[];
  readonly brace: Lexeme;
  readonly lines: Line[];
}

/** Whether a text holds sites, or directives to be put into one. */
export type Content = 'sites' | 'directives';

/**
 * Turns a text into its tree of lines. A site may put its `{` on the next line, and its addresses
 * may go on after a comma.
 * @throws {SourceFault} At the first place where the structure is broken.
 */
export function parse(source: Source, content: Content): Line[] {
  return new Parser(source, content).parse();
}

class Parser {
  readonly #source: Source;
  readonly #top: Line[] = [];
  readonly #open: OpenBlock[] = [];
  /** Addresses without a block: the rest of the text is the site's. */
  #braceless: boolean;
  /** The line that made it so, until another follows. */
  #addresses: Line | null = null;
  /** The first block whose } is indented otherwise: if one is never closed, it is probably this. */
  #suspect: Lexeme | null = null;

  constructor(source: Source, content: Content) {
    this.#source = source;
    this.#braceless = content === 'directives';
  }

  parse(): Line[] {
    let pending: Lexeme[] = [];
    for (const line of linesOf(this.#lex())) {
      for (const lexeme of line) pending.push(lexeme);
      if (this.#endsWithComma(pending)) continue;
      this.#line(pending);
      pending = [];
    }
    if (pending.length > 0) this.#line(pending);
    const unclosed = this.#open.at(-1);
    if (unclosed !== undefined) {
      const opening = this.#suspect ?? unclosed.brace;
      const hint = 'close it with a } on a line of its own';
      throw this.#fault('unclosed-block', opening, 'the block opened here is never closed', hint);
    }
    return this.#top;
  }

  #lex(): Lexeme[] {
    try {
      return lex(this.#source.text, { variables: false });
    } catch (thrown) {
      if (!(thrown instanceof SourceFault)) throw thrown;
      const at = rawRange(this.#source, thrown.at, thrown.at + 1).start;
      throw new SourceFault(thrown.code, at, thrown.message, thrown.hint);
    }
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
    if (this.#open.length > 0) {
      const hint = 'only a site may put its { on the next line';
      throw this.#fault('misplaced-brace', brace, '{ must end the line of its directive', hint);
    }
    const above = this.#top.at(-1);
    if (above === undefined || above.block !== null || above.words[0]?.text === 'import') return [];
    if (above !== this.#addresses) {
      const hint = 'only a site may put its { on the next line';
      throw this.#fault('misplaced-brace', brace, '{ must end the line of its directive', hint);
    }
    this.#top.pop();
    this.#braceless = false;
    return above.words;
  }

  #close(brace: Lexeme): void {
    const block = this.#open.pop();
    if (block === undefined) {
      const hint = 'is a { missing above, or this one too many?';
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

  #add(words: readonly Word[], block: readonly Line[] | null, brace?: Lexeme): void {
    const span = words[0]?.span ?? (brace === undefined ? undefined : this.#span(brace));
    if (span === undefined) return;
    const parent = this.#open.at(-1);
    const line = { words, block, span };
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
          'begin a new line here, or quote the {',
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
        const hint = 'leave an empty block out, or quote the braces';
        throw this.#fault('misplaced-brace', lexeme, '{} is no block', hint);
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

  #fault(code: string, lexeme: Lexeme, message: string, hint?: string): SourceFault {
    return new SourceFault(code, this.#span(lexeme).start, message, hint);
  }
}

function isBrace(lexeme: Lexeme, brace: '{' | '}'): boolean {
  return lexeme.kind === 'plain' && lexeme.text === brace;
}

/** The words of each logical line; comments are gone, but the line they end has ended. */
function linesOf(lexemes: readonly Lexeme[]): Lexeme[][] {
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
