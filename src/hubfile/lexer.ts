import { TextProblem, variableAt } from './source.ts';

/** One piece of a text between white space. */
export interface Lexeme {
  readonly kind: 'plain' | 'quoted' | 'backtick' | 'heredoc' | 'comment';
  /** The value, without quotes, escapes and heredoc indentation. */
  readonly text: string;
  readonly start: number;
  readonly end: number;
  /** Newlines between the previous lexeme and this one, not counting those after a backslash. */
  readonly newlines: number;
  /** Whether a backslash joined this lexeme's line to the previous one. */
  readonly continued: boolean;
}

/** Whether a word opens or closes a block; a brace in quotes does not. */
export function isBrace({ kind, text }: Lexeme, brace: '{' | '}'): boolean {
  return kind === 'plain' && text === brace;
}

interface Reading {
  /** Whether `{$VAR}` is still in the text and is kept whole, whatever it contains. */
  readonly variables: boolean;
}

const SPACE = /[^\S\n\uFEFF]|\u0085/;
const CONTINUATION = /\\[^\S\n]*(?:\n|$)/y;
const HEREDOC_OPENER = /<<(\S*)[^\S\n]*(?:\n|$)/y;
const HEREDOC_MARKER = /^[A-Za-z0-9_-]+$/;
const MARKER_CHARACTER = /[A-Za-z0-9_-]/;

/**
 * Splits a text into its words and comments, in the same way as a Caddyfile.
 * @throws {TextProblem} `unclosed-quote`, `unclosed-heredoc`, `bad-heredoc`, each at its opening.
 */
export function lex(text: string, reading: Reading): Lexeme[] {
  const lexemes: Lexeme[] = [];
  let at = 0;
  let newlines = 0;
  let continued = false;
  while (at < text.length) {
    const character = text.charAt(at);
    if (character === '\n') {
      newlines++;
      at++;
    } else if (character === '\\' && isContinuation(text, at)) {
      continued = true;
      at = text.indexOf('\n', at) + 1 || text.length;
    } else if (SPACE.test(character)) {
      at++;
    } else {
      const piece = readLexeme(text, at, reading);
      lexemes.push({ ...piece, start: at, newlines, continued: continued && newlines === 0 });
      at = piece.end;
      newlines = 0;
      continued = false;
    }
  }
  return lexemes;
}

/** A backslash at the end of a line. Blanks after it are invisible and make no difference. */
function isContinuation(text: string, at: number): boolean {
  CONTINUATION.lastIndex = at;
  return CONTINUATION.test(text);
}

type Piece = Pick<Lexeme, 'kind' | 'text' | 'end'>;

function readLexeme(text: string, at: number, reading: Reading): Piece {
  switch (text[at]) {
    case '#':
      return readComment(text, at, reading);
    case '"':
      return readQuoted(text, at, reading);
    case '`':
      return readBackticks(text, at, reading);
    default:
      return readHeredoc(text, at, reading) ?? readPlain(text, at, reading);
  }
}

/** The offset after the character, or after the whole `{$VAR}`, at an offset. */
function step(text: string, at: number, reading: Reading): number {
  if (reading.variables && text[at] === '{' && text[at + 1] === '$') {
    return at + (variableAt(text, at)?.length ?? 1);
  }
  return at + 1;
}

function readComment(text: string, start: number, reading: Reading): Piece {
  let end = start;
  while (end < text.length && text[end] !== '\n') end = step(text, end, reading);
  return { kind: 'comment', text: text.slice(start, end).trimEnd(), end };
}

function readQuoted(text: string, start: number, reading: Reading): Piece {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') {
    at = text[at] === '\\' && at + 1 < text.length ? at + 2 : step(text, at, reading);
  }
  if (at >= text.length) throw unclosed(start, '"');
  return {
    kind: 'quoted',
    text: text.slice(start + 1, at).replaceAll(/\\([\s\S])/g, unescape),
    end: at + 1,
  };
}

/** Only `\"` is an escape; every other backslash stays. */
function unescape(pair: string, character: string): string {
  return character === '"' ? '"' : pair;
}

function readBackticks(text: string, start: number, reading: Reading): Piece {
  let at = start + 1;
  while (at < text.length && text[at] !== '`') at = step(text, at, reading);
  if (at >= text.length) throw unclosed(start, '`');
  return { kind: 'backtick', text: text.slice(start + 1, at), end: at + 1 };
}

function unclosed(start: number, quote: string): TextProblem {
  const message = `the ${quote} opened here is not closed`;
  return new TextProblem('unclosed-quote', start, message, `close it with another ${quote}`);
}

function readPlain(text: string, start: number, reading: Reading): Piece {
  let end = start;
  while (end < text.length) {
    const character = text.charAt(end);
    if (character === '\n' || SPACE.test(character)) break;
    if (character === '\\' && isContinuation(text, end)) break;
    end = step(text, end, reading);
  }
  const word = text.slice(start, end);
  return { kind: 'plain', text: word.startsWith('\\<<') ? word.slice(1) : word, end };
}

function readHeredoc(text: string, start: number, reading: Reading): Piece | null {
  HEREDOC_OPENER.lastIndex = start;
  const opener = HEREDOC_OPENER.exec(text);
  if (opener === null) return null;
  const marker = opener[1] ?? '';
  if (!HEREDOC_MARKER.test(marker)) throw badMarker(start, marker);
  const bodyStart = start + opener[0].length;
  const closer = findCloser(text, bodyStart, marker, reading);
  if (closer === null) {
    const message = `the heredoc <<${marker} opened here is not closed`;
    const hint = `close it with a line that begins with ${marker}`;
    throw new TextProblem('unclosed-heredoc', start, message, hint);
  }
  const padding = text.slice(closer.lineStart, closer.start);
  const body = text.slice(bodyStart, Math.max(bodyStart, closer.lineStart - 1));
  const lines = closer.lineStart === bodyStart ? [] : body.split('\n');
  const stripped = lines.map((line, index) => {
    if (line === '') return line;
    if (line.startsWith(padding)) return line.slice(padding.length);
    const message = `line ${index + 1} of the heredoc <<${marker} is indented less than its closing marker, or differently`;
    throw new TextProblem('bad-heredoc', start, message, 'indent both with the same white space');
  });
  return { kind: 'heredoc', text: stripped.join('\n'), end: closer.start + marker.length };
}

/** The first line that begins, after its indentation, with the marker as a word of its own. */
function findCloser(
  text: string,
  bodyStart: number,
  marker: string,
  reading: Reading,
): { lineStart: number; start: number } | null {
  let lineStart = bodyStart;
  for (let at = bodyStart; at < text.length; ) {
    let start = lineStart;
    while (start < text.length && SPACE.test(text.charAt(start))) start++;
    const next = text.charAt(start + marker.length);
    if (text.startsWith(marker, start) && !MARKER_CHARACTER.test(next)) return { lineStart, start };
    at = start;
    while (at < text.length && text[at] !== '\n') at = step(text, at, reading);
    at++;
    lineStart = at;
  }
  return null;
}

function badMarker(start: number, marker: string): TextProblem {
  const message = marker.startsWith('<')
    ? 'a heredoc opens with two <, not more'
    : 'the marker of a heredoc is missing, or contains other characters than letters, digits, - and _';
  const hint = 'for example <<END; a literal << at the start of a word is written \\<<';
  return new TextProblem('bad-heredoc', start, message, hint);
}
