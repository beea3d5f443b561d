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
  readonly pieces: readonly Piece[];
  /** The words that came from environment variables, if they are long enough to matter. */
  readonly fromEnvironment: readonly string[];
  /** The hiding of secrets in excerpts depends on the notation. */
  readonly language: 'hubfile' | 'data';
}

/** A range of `text` and the range of `raw` that it came from. */
interface Piece {
  readonly start: number;
  readonly rawStart: number;
  readonly rawEnd: number;
  readonly replaced: boolean;
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
  const pieces: Piece[] = [];
  const fromEnvironment: string[] = [];
  let text = '';
  let from = 0;
  const lastBrace = raw.lastIndexOf('}');
  for (let at = raw.indexOf('{$'); at !== -1 && at < lastBrace; at = raw.indexOf('{$', at + 1)) {
    if (at < from) continue;
    const found = variableAt(raw, at);
    if (found === null) continue;
    pieces.push({ start: text.length, rawStart: from, rawEnd: at, replaced: false });
    text += raw.slice(from, at);
    const end = at + found.length;
    const value = valueOf(found, env);
    const unset = value === '' && !raw.slice(raw.lastIndexOf('\n', at) + 1, at).includes('#');
    pieces.push({
      start: text.length,
      rawStart: at,
      rawEnd: end,
      replaced: true,
      ...(unset ? { unset: found.name } : {}),
    });
    text += value;
    if (value !== found.fallback) fromEnvironment.push(...wordsIn(value));
    from = end;
  }
  pieces.push({ start: text.length, rawStart: from, rawEnd: raw.length, replaced: false });
  return {
    ...where,
    raw,
    text: text + raw.slice(from),
    pieces,
    fromEnvironment,
    language: 'hubfile',
  };
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
  source: Source,
  start: number,
  end: number,
): { start: number; end: number; replaced: boolean } {
  const first = pieceAt(source, start);
  const last = pieceAt(source, Math.max(start, end - 1));
  return {
    start: first.replaced ? first.rawStart : first.rawStart + start - first.start,
    end: last.replaced ? last.rawEnd : last.rawStart + end - last.start,
    replaced: first.replaced || last.replaced || first !== last,
  };
}

function pieceAt(source: Source, offset: number): Piece {
  let low = 0;
  let high = source.pieces.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if ((source.pieces[middle]?.start ?? 0) <= offset) low = middle;
    else high = middle - 1;
  }
  return source.pieces[low] ?? { start: 0, rawStart: 0, rawEnd: 0, replaced: false };
}
