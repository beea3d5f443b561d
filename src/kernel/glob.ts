import { HubgateError } from './error.ts';
import { orNull } from './parse.ts';

/** One token of a pattern: a text that must match literally, or a wildcard or class. */
export interface GlobPiece {
  readonly text: string;
  readonly isLiteral: boolean;
}

type Token =
  | { readonly kind: 'letter'; readonly letter: string }
  /** Any text without a slash. */
  | { readonly kind: 'star' }
  /** One character that is not a slash. */
  | { readonly kind: 'one'; readonly allows: (letter: string) => boolean };

/**
 * Compiles a pattern by the rules of Go's `path.Match`: `*` matches any text without a slash, `?` any
 * character except a slash, `[a-z]` and `[^a-z]` are classes, and `\` makes the next character literal.
 * Matching takes at most the product of both lengths.
 *
 * @throws HubgateError `invalid-pattern` for a class that is not closed, or for a `\` at the end
 */
export function compileGlob(pieces: readonly GlobPiece[]): (text: string) => boolean {
  const tokens = pieces.flatMap(({ text, isLiteral }) =>
    isLiteral ? Array.from(text, letterToken) : tokensOf(text),
  );
  return (text) => isLike(Array.from(text), tokens);
}

/**
 * `*` at the beginning and at the end means any text; elsewhere it is literal. The same as in Caddy's
 * `header`.
 */
export function likeAtEdges(pieces: readonly GlobPiece[]): (text: string) => boolean {
  const [before, text, after] = withoutStars(pieces);
  if (before && after) return (whole) => whole.includes(text);
  if (before) return (whole) => whole.endsWith(text);
  return after ? (whole) => whole.startsWith(text) : (whole) => whole === text;
}

/** The text between a `*` at the beginning and one at the end, and whether they are there. */
export function withoutStars(
  pieces: readonly GlobPiece[],
): readonly [before: boolean, text: string, after: boolean] {
  const first = pieces.at(0);
  const last = pieces.at(-1);
  const before = first?.isLiteral === false && first.text.startsWith('*');
  const after = last?.isLiteral === false && last.text.endsWith('*');
  const text = pieces.map((piece) => piece.text).join('');
  // A lone `*` is both.
  return [before, text.slice(before ? 1 : 0, after && text !== '*' ? -1 : undefined), after];
}

/** Whether a pattern is valid; see {@link compileGlob}. */
export function isGlob(pattern: string): boolean {
  return orNull(() => tokensOf(pattern)) !== null;
}

function isLike(letters: readonly string[], tokens: readonly Token[]): boolean {
  let at = 0;
  let next = 0;
  // The position of the last star and the text that it has matched so far. A star never matches a slash, so
  // the first place where the tokens before it match is as good as any other.
  let star: { token: number; end: number } | null = null;
  while (at < letters.length || next < tokens.length) {
    const letter = letters[at];
    const token = tokens[next];
    if (token?.kind === 'star') {
      star = { token: next, end: at };
      next += 1;
    } else if (letter !== undefined && token !== undefined && fits(letter, token)) {
      if (letter === '/') star = null;
      at += 1;
      next += 1;
    } else {
      if (star === null || star.end >= letters.length || letters[star.end] === '/') return false;
      star.end += 1;
      at = star.end;
      next = star.token + 1;
    }
  }
  return true;
}

function fits(letter: string, token: Exclude<Token, { readonly kind: 'star' }>): boolean {
  return token.kind === 'letter' ? token.letter === letter : letter !== '/' && token.allows(letter);
}

function letterToken(letter: string): Token {
  return { kind: 'letter', letter };
}

function tokensOf(pattern: string): Token[] {
  const letters = Array.from(pattern);
  const tokens: Token[] = [];
  for (let at = 0; at < letters.length; at += 1) {
    const letter = letters[at] ?? '';
    if (letter === '*') tokens.push({ kind: 'star' });
    else if (letter === '?') tokens.push({ kind: 'one', allows: () => true });
    else if (letter === '[') {
      const end = classEnd(letters, at, pattern);
      tokens.push({ kind: 'one', allows: classOf(letters.slice(at + 1, end), pattern) });
      at = end;
    } else if (letter === '\\') {
      at += 1;
      tokens.push(letterToken(letters[at] ?? malformed(pattern)));
    } else tokens.push(letterToken(letter));
  }
  return tokens;
}

function classEnd(letters: readonly string[], start: number, pattern: string): number {
  for (let at = start + 1; at < letters.length; at += 1) {
    if (letters[at] === '\\') at += 1;
    else if (letters[at] === ']') return at;
  }
  return malformed(pattern);
}

function classOf(written: readonly string[], pattern: string): (letter: string) => boolean {
  const isNegated = written[0] === '^';
  const ranges: (readonly [from: string, to: string])[] = [];
  let at = isNegated ? 1 : 0;
  const bound = (): string => {
    if (written[at] === '\\') at += 1;
    const letter = written[at];
    at += 1;
    return letter === undefined || letter === '-' ? malformed(pattern) : letter;
  };
  while (at < written.length) {
    const from = bound();
    if (written[at] !== '-') ranges.push([from, from]);
    else {
      at += 1;
      ranges.push([from, bound()]);
    }
  }
  if (ranges.length === 0) malformed(pattern);
  const point = (letter: string): number => letter.codePointAt(0) ?? 0;
  return (letter) =>
    ranges.some(([from, to]) => point(from) <= point(letter) && point(letter) <= point(to)) !==
    isNegated;
}

function malformed(pattern: string): never {
  throw new HubgateError('invalid-pattern', `"${pattern}" is not a valid pattern of names`);
}
