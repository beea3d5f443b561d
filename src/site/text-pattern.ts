import { compileGlob, type GlobPiece } from '../kernel/glob.ts';
import { decodePath, mergeSlashes } from '../http/request-path.ts';
import type { Exchange } from '../http/exchange.ts';
import { PLACEHOLDER } from './placeholder-names.ts';
import { expandPlaceholders } from './placeholders.ts';
import { compilePattern, matchable } from '../http/linear-regexp.ts';

/** Whether a text is like a pattern. */
export type IsLike = (text: string) => boolean;

/**
 * A pattern whose placeholders are filled in for each request: what one brings in stands for itself,
 * whatever wildcards are in it. Without placeholders it is compiled once.
 *
 * @param decode given for patterns with escapes: what it makes of them stands for itself too
 */
export function filledIn(
  template: string,
  compile: (pieces: readonly GlobPiece[]) => IsLike,
  decode: ((text: string) => string) | null = null,
): (exchange: Exchange) => IsLike {
  const parts = divided(template, PLACEHOLDER).flatMap((part) => {
    if (part.isLiteral) return [{ ...part, isFixed: false }];
    const pieces = decode === null ? [part] : divided(part.text, ESCAPES, decode);
    return pieces.map((piece) => ({ ...piece, isFixed: true }));
  });
  if (parts.every(({ isFixed }) => isFixed)) {
    const compiled = compile(parts);
    return () => compiled;
  }
  return (exchange) =>
    compile(
      parts.map(({ text, isLiteral, isFixed }) => ({
        text: isFixed ? text : expandPlaceholders(text, exchange),
        isLiteral,
      })),
    );
}

const ESCAPES = /(?:%[0-9A-Fa-f]{2})+/g;

/** A text in pieces: what the expression finds is literal. */
function divided(
  text: string,
  found: RegExp,
  change: (text: string) => string = (each) => each,
): GlobPiece[] {
  const pieces: GlobPiece[] = [];
  let end = 0;
  for (const match of text.matchAll(found)) {
    pieces.push({ text: text.slice(end, match.index), isLiteral: false });
    pieces.push({ text: change(match[0]), isLiteral: true });
    end = match.index + match[0].length;
  }
  pieces.push({ text: text.slice(end), isLiteral: false });
  return pieces.filter((piece) => piece.text !== '');
}

/**
 * `*` at the beginning and at the end is any text; elsewhere it stands for itself. As Caddy's `header`.
 */
export function likeAtEdges(pieces: readonly GlobPiece[]): IsLike {
  const [before, text, after] = withoutStars(pieces);
  if (before && after) return (whole) => whole.includes(text);
  if (before) return (whole) => whole.endsWith(text);
  return after ? (whole) => whole.startsWith(text) : (whole) => whole === text;
}

/**
 * As Caddy's `path`: with no other `*` than one at the beginning, one at the end or both, these are any
 * text, and all else stands for itself; other patterns are globs. Letters count whatever their case.
 */
export function likePath(written: readonly GlobPiece[]): IsLike {
  const pieces = written.map((piece) => ({ ...piece, text: piece.text.toLowerCase() }));
  const stars = pieces.reduce(
    (sum, { text, isLiteral }) => sum + (isLiteral ? 0 : text.split('*').length - 1),
    0,
  );
  const [before, , after] = withoutStars(pieces);
  const atEdges = Number(before) + Number(after);
  const isPlain = (atEdges > 0 && stars === atEdges) || isOnlyStar(pieces);
  return isPlain ? likeAtEdges(pieces) : compileGlob(pieces);
}

/** How a pattern wants to see a path: `//` and `%2F` are themselves for whoever writes them. */
export function viewFor(pattern: string): (path: string) => string {
  const decode = decoderFor(pattern);
  return pattern.includes('//')
    ? (path) => decode(path).toLowerCase()
    : (path) => mergeSlashes(decode(path)).toLowerCase();
}

export function decoderFor(pattern: string): (path: string) => string {
  return /%2f/i.test(pattern) ? decodeButSlashes : decodePath;
}

/** `%2F` stays, and `%25` too, so that none comes of `%252F`. */
function decodeButSlashes(path: string): string {
  return path
    .split(/(%2f|%25)/i)
    .map((part, index) => (index % 2 === 0 ? decodePath(part) : part))
    .join('');
}

function withoutStars(
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

function isOnlyStar(pieces: readonly GlobPiece[]): boolean {
  return pieces.length === 1 && pieces[0]?.isLiteral === false && pieces[0].text === '*';
}

/**
 * Tests a text; what the groups capture becomes `{re.N}`, and with a name `{re.NAME.N}` as well. A group
 * `(?P<word>…)` is `{re.word}` too.
 *
 * @throws HubgateError `invalid-pattern`; the function throws an HttpError 431 for a text that is too long
 */
export function capturing(
  pattern: string,
  name: string | null,
): (text: string, at: Exchange) => boolean {
  const compiled = compilePattern(pattern);
  const prefixes = name === null ? ['re'] : ['re', `re.${name}`];
  return (text, { variables }) => {
    const groups = compiled.match(matchable(text));
    if (groups === null) return false;
    for (const prefix of prefixes) {
      for (const [index, group] of groups.entries()) variables.set(`${prefix}.${index}`, group);
      for (const [word, index] of compiled.named) {
        variables.set(`${prefix}.${word}`, groups[index] ?? '');
      }
    }
    return true;
  };
}
