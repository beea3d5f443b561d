/**
 * A configuration text as it was written (`raw`) and as it is read (`text`), after `{$VAR}` has been
 * replaced. External offsets always refer to `raw`, so that a problem points at the text that the operator
 * sees, and an excerpt never shows the value of a variable.
 */
export interface Source {
  /** Name for the operator. */
  readonly file: string;
  /** Absolute; relative imports start from its directory. */
  readonly path: string;
  readonly raw: string;
  readonly text: string;
  /** The same text with its origins in `raw`; without any for data. */
  readonly mapped: MappedText<Piece>;
  /** The words that came from environment variables, if they are long enough to matter. */
  readonly fromEnvironment: readonly string[];
  /** The hiding of secrets in excerpts depends on the notation. */
  readonly language: 'hubfile' | 'data';
}

/** Where a piece of a text comes from. */
interface Origin {
  /** An offset of the original text. */
  readonly at: number;
  /** Whether it has been taken from there. Otherwise it stands in place of something there. */
  readonly kept: boolean;
}

/** A text that is put together from pieces, each with its origin. */
export class MappedText<From extends Origin = Origin> {
  readonly #pieces: { readonly start: number; readonly from: From }[] = [];
  #text = '';

  get text(): string {
    return this.#text;
  }

  get origins(): readonly From[] {
    return this.#pieces.map(({ from }) => from);
  }

  add(piece: string, from: From): void {
    this.#pieces.push({ start: this.#text.length, from });
    this.#text += piece;
  }

  /** Adds a range of another such text. */
  addPart(other: MappedText<From>, start: number, end: number): void {
    for (const [index, piece] of other.#pieces.entries()) {
      const first = Math.max(start, piece.start);
      const last = Math.min(end, other.#pieces[index + 1]?.start ?? other.#text.length);
      if (first >= last) continue;
      const { from } = piece;
      const moved = from.kept ? { ...from, at: from.at + first - piece.start } : from;
      this.add(other.#text.slice(first, last), moved);
    }
  }

  /** The piece that a character belongs to, and its offset in the original text; undefined without pieces. */
  originOf(offset: number): { readonly from: From; readonly at: number } | undefined {
    let low = 0;
    let high = this.#pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if ((this.#pieces[middle]?.start ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    const piece = this.#pieces[low];
    if (piece === undefined) return undefined;
    const { from, start } = piece;
    return { from, at: from.kept ? from.at + offset - start : from.at };
  }
}

/** A piece of a text in which variables have been replaced. */
interface Piece extends Origin {
  /** For a variable: the offset after it. */
  readonly end?: number;
  /** The name of the variable, if it is not set and has no default. */
  readonly unset?: string;
}

/** A fault that ends the reading of one text. `at` is an offset into its `raw`. */
export class TextProblem extends Error {
  readonly code: string;
  readonly at: number;
  readonly hint: string | undefined;
  /** The position of the first occurrence in the same text. */
  readonly first: number | undefined;

  constructor(code: string, at: number, message: string, hint?: string, first?: number) {
    super(message);
    this.code = code;
    this.at = at;
    this.hint = hint;
    this.first = first;
  }
}

export type Environment = Readonly<Record<string, string | undefined>>;

export const MAX_SOURCE_BYTES = 4 * 1024 * 1024;

const VARIABLE = /\{\$([^\n{}:]*)(?::([^}]*))?\}/y;
const LONE_CR_OR_NUL = /\r(?!\n)|\0/;

/**
 * Removes a byte order mark that an editor has put after blank space, so that it does not become part of the
 * first word.
 */
export function withoutMark(text: string): string {
  return text.replace(/^[\s\uFEFF]+/, (blank) => blank.replaceAll('\uFEFF', ' '));
}

/**
 * Decodes UTF-8 with or without a byte order mark, with LF or CRLF. The result has only LF. If there is a
 * problem, it is returned together with all the text that could be read.
 */
export function decodeText(bytes: Uint8Array): { text: string; fault?: TextProblem } {
  if (bytes.length > MAX_SOURCE_BYTES) {
    const message = `the file is larger than ${MAX_SOURCE_BYTES} bytes`;
    return { text: '', fault: new TextProblem('file-too-large', 0, message) };
  }
  const valid = validPrefix(bytes);
  const decoded = new TextDecoder('utf-8').decode(bytes.subarray(0, valid));
  const text = withoutMark(decoded).replaceAll('\r\n', '\n');
  if (valid < bytes.length) {
    const message = 'the file is not UTF-8 from here on';
    return { text, fault: new TextProblem('not-utf8', text.length, message, 'save it as UTF-8') };
  }
  try {
    checkText(text);
    return { text };
  } catch (thrown) {
    if (thrown instanceof TextProblem) return { text, fault: thrown };
    throw thrown;
  }
}

/** @throws {TextProblem} `bad-character` at a character that must not occur in a text. */
export function checkText(text: string): void {
  const bad = LONE_CR_OR_NUL.exec(text);
  if (bad === null) return;
  const what = bad[0] === '\0' ? 'a NUL character' : 'a carriage return without a line feed';
  const hint = 'lines end with LF or CRLF, and the file is plain UTF-8 text';
  throw new TextProblem('bad-character', bad.index, `${what} is not allowed`, hint);
}

/** Length of the longest prefix that is well-formed UTF-8. */
function validPrefix(bytes: Uint8Array): number {
  if (decodes(bytes, false)) return bytes.length;
  let good = 0;
  let bad = bytes.length;
  while (bad - good > 1) {
    const middle = (good + bad) >>> 1;
    if (decodes(bytes.subarray(0, middle), true)) good = middle;
    else bad = middle;
  }
  // The end of the prefix may be the beginning of an incomplete character.
  while (good > 0 && !decodes(bytes.subarray(0, good), false)) good--;
  return good;
}

function decodes(bytes: Uint8Array, mayContinue: boolean): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: mayContinue });
    return true;
  } catch {
    // The only error of a fatal decoder is "not valid", which is the result here.
    return false;
  }
}

/**
 * Replaces `{$VAR}` and `{$VAR:default}` everywhere, once. A default is used if the variable is unset or
 * empty.
 */
export function makeSource(
  where: { file: string; path: string },
  raw: string,
  env: Environment,
): Source {
  const mapped = new MappedText<Piece>();
  const fromEnvironment: string[] = [];
  let from = 0;
  const lastBrace = raw.lastIndexOf('}');
  for (let at = raw.indexOf('{$'); at !== -1 && at < lastBrace; at = raw.indexOf('{$', at + 1)) {
    if (at < from) continue;
    const found = variableAt(raw, at);
    if (found === null) continue;
    mapped.add(raw.slice(from, at), { at: from, kept: true });
    const end = at + found.length;
    const value = valueOf(found, env);
    const unset = value === '' && !raw.slice(raw.lastIndexOf('\n', at) + 1, at).includes('#');
    mapped.add(value, { at, end, kept: false, ...(unset ? { unset: found.name } : {}) });
    if (value !== found.fallback) fromEnvironment.push(...wordsIn(value));
    from = end;
  }
  mapped.add(raw.slice(from), { at: from, kept: true });
  const { text } = mapped;
  return { ...where, raw, text, mapped, fromEnvironment, language: 'hubfile' };
}

/** Shorter words are not secrets, and hiding them would hide unrelated text. */
const SHORTEST_HIDDEN = 4;

function wordsIn(value: string): string[] {
  return value.split(/[\s"`]+/).filter((word) => word.length >= SHORTEST_HIDDEN);
}

interface Variable {
  readonly name: string;
  readonly fallback: string;
  readonly length: number;
}

/** The `{$VAR}` that begins at an offset of an original text. */
export function variableAt(raw: string, at: number): Variable | null {
  VARIABLE.lastIndex = at;
  const match = VARIABLE.exec(raw);
  if (match === null || match[0] === '{$}') return null;
  return { name: match[1] ?? '', fallback: match[2] ?? '', length: match[0].length };
}

function valueOf(variable: Variable, env: Environment): string {
  const value = Object.hasOwn(env, variable.name) ? env[variable.name] : undefined;
  if (value === undefined || value === '') return variable.fallback;
  return value.replaceAll('\r\n', '\n');
}

/** The range of `raw` for a range of `text`. */
export function rawRange(
  { mapped }: Source,
  start: number,
  end: number,
): { start: number; end: number; replaced: boolean } {
  const first = mapped.originOf(start);
  const lastAt = Math.max(start, end - 1);
  const last = mapped.originOf(lastAt);
  if (first === undefined || last === undefined) return { start, end, replaced: false };
  return {
    start: first.at,
    end: last.from.end ?? last.at + end - lastAt,
    replaced: !first.from.kept || !last.from.kept || first.from !== last.from,
  };
}
