import { insteadOfOption, needlessBecause } from './unsupported.ts';
import { placeText, didYouMean } from '../config/problem.ts';
import {
  type Origins,
  placeOf,
  type Span,
  visibleText,
  LineProblem,
  type Problems,
} from './place.ts';
import type { Line, Word } from './parser.ts';
import { isSecretWord } from './secrecy.ts';

/** The options of a block: each returns the fields that its line sets. */
export type OptionTable<Settings> = Readonly<
  Record<string, ((cursor: Cursor, sofar: Settings) => Partial<Settings>) | undefined>
>;

interface OptionRules {
  /** Options that may be given more than once. */
  readonly repeatable?: readonly string[];
  /** Caddyfile options that hubgate does not have, each with the alternative. */
  readonly unsupported?: Readonly<Record<string, string>>;
  /** Reads lines that are not options of the table: named matchers, header fields, options of another directive. */
  readonly other?: (cursor: Cursor) => boolean;
  /** Names of options that `other` reads. */
  readonly otherNames?: readonly string[];
}

/** “ ” „ « ‘, written as escapes so that the program does not need two bytes per character in memory. */
const TYPOGRAPHIC_QUOTE = /^[\u201c\u201d\u201e\u00ab\u2018]/;

/**
 * Reads the words of one directive. Each word is read with a description of what is expected, so that nothing
 * in a file is silently ignored.
 */
export class Cursor {
  readonly line: Line;
  readonly problems: Problems;
  readonly origins: Origins;
  #next = 1;
  #blockRead = false;

  constructor(line: Line, problems: Problems, origins: Origins) {
    this.line = line;
    this.problems = problems;
    this.origins = origins;
  }

  /** The directive's own name. */
  get name(): string {
    return this.line.words[0]?.text ?? '';
  }

  get span(): Span {
    return this.line.words[0]?.span ?? this.line.span;
  }

  get hasBlock(): boolean {
    return this.line.block !== null;
  }

  /** The number of arguments that have not been read. */
  get left(): number {
    return this.line.words.length - this.#next;
  }

  peek(): Word | undefined {
    return this.line.words[this.#next];
  }

  optional(): Word | undefined {
    const word = this.peek();
    if (word !== undefined) this.#next++;
    return word;
  }

  /** The next argument, which is required. */
  argument(expected: string): Word {
    const word = this.optional();
    if (word !== undefined) return word;
    return this.fail(this.#lastWordSpan(), 'expected-argument', `${this.name} needs ${expected}`);
  }

  /** All remaining arguments. */
  rest(): Word[] {
    const words = this.line.words.slice(this.#next);
    this.#next = this.line.words.length;
    return words;
  }

  /** All remaining arguments, at least one. */
  several(expected: string): Word[] {
    return [this.argument(expected), ...this.rest()];
  }

  /** The lines of the block, each with its own cursor; empty without a block. */
  lines(): Cursor[] {
    this.#blockRead = true;
    return (this.line.block ?? []).map((line) => new Cursor(line, this.problems, this.origins));
  }

  /** Reads each line of the block as a whole. Every invalid line is reported and left out. */
  eachLine<Item>(read: (line: Cursor) => Item): Item[] {
    return this.lines().flatMap((line) => {
      const readAll = (): Item[] => {
        const item = read(line);
        line.end();
        return [item];
      };
      return this.problems.attempt(readAll) ?? [];
    });
  }

  /** The unparsed lines of the block, for other readers. */
  block(): readonly Line[] {
    if (this.line.block === null) {
      return this.fail(this.#lastWordSpan(), 'expected-block', `${this.name} needs a block { … }`);
    }
    this.#blockRead = true;
    return this.line.block;
  }

  /** Reports arguments and blocks that were not read. */
  end(): void {
    const curly = this.#curlyHint();
    if (curly !== undefined) {
      this.warn(
        this.span,
        'curly-quotes',
        'typographic quotes are not quotes: they stay in the text',
        curly,
      );
    }
    const extra = this.peek();
    if (extra !== undefined) {
      const message = `${this.name} takes no further argument, but has ${this.quote(extra)}`;
      this.fail(extra.span, 'unexpected-argument', message);
    }
    if (this.line.block !== null && !this.#blockRead) {
      this.fail(this.#lastWordSpan(), 'unexpected-block', `${this.name} takes no block`);
    }
  }

  /**
   * Reads a block of options into settings. Every invalid line is reported. The places of all fields are
   * recorded.
   */
  options<Settings extends object>(
    start: Settings,
    table: OptionTable<NoInfer<Settings>>,
    rules: OptionRules = {},
  ): Settings {
    let settings = { ...start };
    const places = new Map<string, Span>();
    const seen = new Map<string, Cursor>();
    for (const option of this.lines()) {
      const read = (): void => {
        if (rules.other?.(option) === true) return;
        const setter = Object.hasOwn(table, option.name) ? table[option.name] : undefined;
        if (setter === undefined) {
          const [word] = option.line.words;
          if (word !== undefined && option.warnNoEffect(this.name, word)) return;
          const known = Object.keys(table).filter((each) => table[each] !== undefined);
          return option.#failUnknown([...(rules.otherNames ?? []), ...known], this.name, rules);
        }
        const before = seen.get(option.name);
        seen.set(option.name, option);
        if (before !== undefined && rules.repeatable?.includes(option.name) !== true) {
          option.failTwice(before.span);
        }
        const changes = setter(option, settings);
        option.end();
        settings = { ...settings, ...changes };
        for (const field of Object.keys(changes)) places.set(field, option.span);
      };
      this.problems.attempt(read);
    }
    this.origins.mark(settings, this.span, places);
    return settings;
  }

  /** Reports an error and leaves this directive. */
  fail(span: Span, code: string, message: string, hint?: string): never {
    throw new LineProblem(span, code, message, this.#curlyHint() ?? hint);
  }

  /** @param what that hubgate does not have, in the words of the file */
  failUnsupported(span: Span, what: string, instead?: string): never {
    const message = `${what} is not supported by hubgate`;
    return this.fail(span, 'unsupported-option', message, instead);
  }

  /** @param first place of the first occurrence */
  failTwice(first: Span): never {
    const message = `${this.name} is given twice; the first is at ${placeText(placeOf(first))}`;
    return this.fail(this.span, 'duplicate-option', message);
  }

  warn(span: Span, code: string, message: string, hint?: string): void {
    this.problems.warn(span, code, message, hint);
  }

  /** Warns about an option of Caddy that hubgate needs not. Returns false if the word is no such option. */
  warnNoEffect(owner: string, { text, span }: Word): boolean {
    const reason = needlessBecause(owner, text);
    if (reason === undefined) return false;
    this.warn(span, 'no-effect', `${text} has no effect in hubgate`, reason);
    return true;
  }

  /** A word in a form that a message may show: never a secret, never the value of a variable. */
  quote(word: Word): string {
    if (isSecretWord(this.name)) return '[…]';
    const visible = visibleText(word.span);
    const text = word.replaced || visible.includes('[…]') ? visible : word.text;
    const short = text.length > 60 ? `${text.slice(0, 60)}…` : text;
    return `"${short.replaceAll(/\p{Cc}/gu, '·')}"`;
  }

  /** A hint for quotation marks that a word processor has replaced. */
  #curlyHint(): string | undefined {
    const has = this.line.words.some(({ plain, text }) => plain && TYPOGRAPHIC_QUOTE.test(text));
    return has ? 'write straight quotes: "…"' : undefined;
  }

  #failUnknown(known: readonly string[], owner: string, rules: OptionRules): never {
    const own = rules.unsupported ?? {};
    const instead = Object.hasOwn(own, this.name)
      ? own[this.name]
      : insteadOfOption(owner, this.name);
    if (instead !== undefined) return this.failUnsupported(this.span, this.name, instead);
    const hint = didYouMean(this.name, known) ?? `known are ${known.join(', ')}`;
    const first = this.line.words[0];
    const shown = first === undefined ? '{' : this.#plainName(first);
    return this.fail(this.span, 'unknown-option', `unknown option ${shown} in ${owner}`, hint);
  }

  #plainName(word: Word): string {
    // The text in place of an option may be a stray line of a key.
    return word.text.length > 40 ? '[…]' : `"${word.text.replaceAll(/\p{Cc}/gu, '·')}"`;
  }

  #lastWordSpan(): Span {
    return this.line.words[this.#next - 1]?.span ?? this.line.span;
  }
}
