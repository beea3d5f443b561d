import { type Lexeme, lex } from '../../../src/hubfile/lexer.ts';
import { TextProblem } from '../../../src/hubfile/source.ts';

/** Where an offset of a Hubfile is, as far as what stands before it tells. */
export interface Position {
  /** The words of the lines of which the blocks are open, outermost first; of the global options none. */
  readonly blocks: readonly (readonly string[])[];
  /** The words before it on its line. */
  readonly words: readonly string[];
  /** What is written of the word at the offset. */
  readonly word: string;
  /** Where that begins. */
  readonly start: number;
  readonly kind: 'word' | 'quoted' | 'comment';
}

/** Larger ones are looked at no more with each key. */
const MAX_CHARACTERS = 1024 * 1024;

/** The position at an offset; null in a text that is too large. */
export function positionAt(text: string, offset: number): Position | null {
  if (offset > MAX_CHARACTERS) return null;
  const { lexemes, unclosed } = lexed(text.slice(0, offset));
  const lines = new Lines();
  const last = unclosed === null ? lexemes.at(-1) : undefined;
  // A comment goes to the end of its line, with the blanks that are not in its text.
  const inComment = last?.kind === 'comment' && !text.slice(last.start, offset).includes('\n');
  const touches = last !== undefined && last.kind !== 'comment' && last.end === offset;
  for (const lexeme of touches ? lexemes.slice(0, -1) : lexemes) lines.add(lexeme);
  const start = unclosed ?? (touches ? last.start : offset);
  const continues = /\\[^\S\n]*\n\s*$/.test(text.slice(0, start));
  const isNew = !continues && /\n[^\S\n]*$/.test(text.slice(0, start)) && !lines.goesOn();
  const words = lines.wordsFor(isNew || start === 0);
  const found = { blocks: lines.blocks(), words, word: text.slice(start, offset), start };
  if (inComment) return { ...found, kind: 'comment' };
  const isPlain = unclosed === null && (!touches || last.kind === 'plain');
  return { ...found, kind: isPlain ? 'word' : 'quoted' };
}

/** The words of a text, and where one begins that goes on beyond its end. */
function lexed(text: string): { lexemes: readonly Lexeme[]; unclosed: number | null } {
  try {
    return { lexemes: lex(text, { variables: true }), unclosed: null };
  } catch (thrown) {
    if (!(thrown instanceof TextProblem)) throw thrown;
    return { lexemes: lex(text.slice(0, thrown.at), { variables: true }), unclosed: thrown.at };
  }
}

/** The blocks that are open while a text is read word by word. */
class Lines {
  readonly #open: string[][] = [];
  #line: Lexeme[] = [];
  /** An address without a block: all that follows is its site. */
  #site: string[] | null = null;

  add(lexeme: Lexeme): void {
    if (lexeme.newlines > 0 && !this.goesOn()) this.#end();
    if (lexeme.kind !== 'comment') this.#line.push(lexeme);
  }

  /** Addresses go on behind a comma. */
  goesOn(): boolean {
    const last = this.#line.at(-1);
    const isAddress = this.#open.length === 0 && this.#site === null;
    return isAddress && last?.kind === 'plain' && last.text.endsWith(',');
  }

  /** The words of the line that a further word would stand on. */
  wordsFor(isNew: boolean): readonly string[] {
    if (isNew || endsBlockLine(this.#line)) this.#end();
    return this.#line.map(({ text }) => text);
  }

  blocks(): readonly (readonly string[])[] {
    return this.#site === null ? this.#open : [this.#site, ...this.#open];
  }

  #end(): void {
    const line = this.#line;
    const [first] = line;
    if (first === undefined) return;
    this.#line = [];
    const words = line.map(({ text }) => text);
    if (first.kind === 'plain' && first.text === '}') this.#open.pop();
    else if (endsBlockLine(line)) this.#begin(words.slice(0, -1));
    else if (this.#open.length === 0 && words[0] !== 'import') this.#site ??= words;
  }

  #begin(words: string[]): void {
    // A site may have its { on the next line.
    const isSite = words.length === 0 && this.#open.length === 0 && this.#site !== null;
    this.#open.push(isSite ? (this.#site ?? []) : words);
    if (isSite) this.#site = null;
  }
}

function endsBlockLine(line: readonly Lexeme[]): boolean {
  const last = line.at(-1);
  return last?.kind === 'plain' && last.text === '{';
}
