import { isBrace, type Lexeme, lex } from './lexer.ts';
import { Problems } from './place.ts';
import { TextProblem, checkText, decodeText, makeSource, withoutMark } from './source.ts';

/**
 * A Hubfile in its one canonical layout: a tab per level, one space between words, at most one
 * blank line, one between sites, braces where they belong. Words, quotes, heredocs and comments stay
 * as they are written, so the meaning does; formatting twice changes nothing more.
 * @throws {ConfigError} `invalid-config` at an unclosed quote or heredoc.
 */
export function formatHubfile(text: string, file = 'Hubfile'): string {
  const normal = withoutMark(text).replaceAll('\r\n', '\n');
  const layout = new Layout(normal);
  for (const lexeme of readLexemes(normal, file)) layout.add(lexeme);
  return layout.toString();
}

/**
 * The text of a file, which must be UTF-8.
 * @throws {ConfigError} `invalid-config` at the first byte that is not.
 */
export function hubfileText(bytes: Uint8Array, file: string): string {
  const { text, fault } = decodeText(bytes);
  if (fault !== undefined) refuse(fault, text, file);
  return text;
}

function readLexemes(text: string, file: string): Lexeme[] {
  try {
    checkText(text);
    return lex(text, { variables: true });
  } catch (thrown) {
    if (!(thrown instanceof TextProblem)) throw thrown;
    return refuse(thrown, text, file);
  }
}

function refuse(fault: TextProblem, text: string, file: string): never {
  const problems = new Problems();
  const source = makeSource({ file, path: file }, text, {});
  const span = { source, start: fault.at, end: fault.at + 1, via: null };
  problems.error(span, fault.code, fault.message, fault.hint);
  problems.throwIfAny();
  throw fault;
}

type Last = 'nothing' | 'word' | 'comment' | '{' | '}';

class Layout {
  readonly #text: string;
  #out = '';
  #depth = 0;
  #last: Last = 'nothing';
  /** Whether the current line is an `import` outside of all blocks. */
  #topImport = false;
  /** The last word as it is written. */
  #lastWord = '';
  /** Whether a top-level block has ended on the current line. */
  #siteEnded = false;

  constructor(text: string) {
    this.#text = text;
  }

  add(lexeme: Lexeme): void {
    if (lexeme.kind === 'comment') this.#comment(lexeme);
    else if (isBrace(lexeme, '{')) this.#open(lexeme);
    else if (isBrace(lexeme, '}') && !this.#holdsLine(lexeme)) this.#close();
    else this.#word(lexeme);
  }

  toString(): string {
    return this.#out === '' ? '' : `${this.#out}${this.#lineEnd()}`;
  }

  /** A line break. A backslash before it would continue the line, unless that line is empty. */
  #lineEnd(): string {
    return this.#last === 'word' && this.#lastWord.endsWith('\\') ? ' \\\n\n' : '\n';
  }

  /** Whether a word would swallow the line break if a misplaced } were moved to the next line. */
  #holdsLine({ newlines }: Lexeme): boolean {
    if (newlines > 0 || this.#last !== 'word') return false;
    return this.#lastWord.endsWith('\\') || this.#lastWord.startsWith('<<');
  }

  #comment(lexeme: Lexeme): void {
    const beside = lexeme.newlines === 0 && (this.#last === 'word' || this.#last === '}');
    if (beside) this.#out += ' ';
    else this.#newLine(lexeme.newlines > 1);
    this.#out += lexeme.text;
    this.#last = 'comment';
  }

  #open(lexeme: Lexeme): void {
    const beside = this.#last === 'word' && !(lexeme.newlines > 0 && this.#topImport);
    if (beside) this.#out += ' {';
    else {
      this.#newLine(lexeme.newlines > 1);
      this.#out += '{';
    }
    this.#depth++;
    this.#last = '{';
  }

  #close(): void {
    this.#depth = Math.max(0, this.#depth - 1);
    this.#newLine(false);
    this.#out += '}';
    this.#last = '}';
    this.#siteEnded = this.#depth === 0;
  }

  #word(lexeme: Lexeme): void {
    const beside = lexeme.newlines === 0 && this.#last === 'word';
    if (!beside) {
      this.#newLine(lexeme.newlines > 1);
      this.#topImport = this.#depth === 0 && lexeme.text === 'import';
    } else if (lexeme.continued) this.#out += ` \\\n${'\t'.repeat(this.#depth + 1)}`;
    else this.#out += ' ';
    this.#lastWord = this.#text.slice(lexeme.start, lexeme.end);
    this.#out += this.#lastWord;
    this.#last = 'word';
  }

  #newLine(blankBefore: boolean): void {
    if (this.#last !== 'nothing') this.#out += this.#lineEnd();
    const mayBeBlank = this.#last !== 'nothing' && this.#last !== '{';
    if (mayBeBlank && (blankBefore || this.#siteEnded)) this.#out += '\n';
    this.#siteEnded = false;
    this.#out += '\t'.repeat(this.#depth);
  }
}
