import { RE2JS, RE2JSSyntaxException } from 're2js';
import { HubgateError } from '../kernel/error.ts';
import { likeAtEdges } from '../kernel/glob.ts';
import { HttpError } from './errors.ts';

/** A regular expression that takes linear time for any input. */
export interface Pattern {
  /** Groups that have names, with their numbers. */
  readonly named: readonly (readonly [name: string, index: number])[];
  /**
   * Whether any part of the text matches, without groups. This is much cheaper than `match`, but much more
   * expensive if the pattern remembers long stretches of text (`a.{14}$`).
   */
  test(text: string): boolean;
  /**
   * The groups of the first match: the whole match first, unmatched groups empty; null if nothing matches.
   *
   * @throws HttpError 431 if the groups of this text cost more than {@link MAX_MATCH_STEPS}
   */
  match(text: string): readonly string[] | null;
  /**
   * Creates a function that replaces every match. In the template, `$1`, `${1}`, `$name` and `${name}` stand for
   * groups, and `$$` for a dollar sign. `expand` gets the text between them, never the matched text. Its
   * result is not interpreted further.
   *
   * @param status of the HttpError that the function throws if it takes too long ({@link FREE_REPLACE_STEPS}). @default 431
   */
  replacer(
    template: string,
    status?: number,
  ): (text: string, expand: (literal: string) => string) => string;
}

/** Longest client text for a regular expression, in characters. Whether it matches is known within about 5 ms. */
export const MAX_MATCHED_LENGTH = 16 * 1024;

/**
 * Most steps of finding the groups of a match: characters times instructions of the pattern, at most 15 ns each. A
 * repetition such as `{20,256}` has as many instructions as it may have turns.
 */
const MAX_MATCH_STEPS = 4_000_000;

/**
 * A replacement may look for each match in the whole rest of the text, so that its cost may grow with the square of the
 * length. After {@link FREE_REPLACE_STEPS} it may run for another {@link MAX_REPLACE_MS}. 16,384 matches
 * of one character need less than half of the steps.
 */
const FREE_REPLACE_STEPS = 8_000_000;
const MAX_REPLACE_MS = 250;

/**
 * Checks text from a client before a regular expression of the configuration processes it.
 *
 * @throws HttpError 431 beyond {@link MAX_MATCHED_LENGTH}, because no match can be determined
 */
export function matchable(text: string): string {
  if (text.length <= MAX_MATCHED_LENGTH) return text;
  throw new HttpError(431, `${text.length} characters are too many for a regular expression`);
}

/** A piece of a template: text, or the group that takes its place. */
type Piece = { readonly literal: string } | { readonly group: number | string };

const GROUP = /\$(?:(\$)|(\d+)|\{(\w+)\}|([A-Za-z_]\w*))/g;

/**
 * Compiles RE2 syntax. The configuration sets the pattern and clients choose the text. With V8's engine, a
 * client could block the process.
 *
 * @throws HubgateError `invalid-pattern`
 */
export function compilePattern(source: string): Pattern {
  const regex = compile(source);
  const instructions = regex.programSize();
  return {
    named: Object.entries(regex.namedGroups()),
    test: (text) => regex.test(text),
    match(text) {
      const isCostly = text.length * instructions > MAX_MATCH_STEPS;
      if (isCostly && !regex.test(text)) return null;
      if (isCostly) throw tooCostly(text);
      const matcher = regex.matcher(text);
      if (!matcher.find()) return null;
      const groups: string[] = [];
      for (let i = 0; i <= matcher.groupCount(); i += 1) groups.push(matcher.group(i) ?? '');
      return groups;
    },
    replacer(template, status = 431) {
      const pieces = piecesOf(template, regex);
      return (text, expand) => replaceAll(regex, pieces, text, expand, status);
    },
  };
}

function tooCostly(text: string, status = 431): HttpError {
  return new HttpError(status, `${text.length} characters cost this regular expression too much`);
}

function piecesOf(template: string, regex: RE2JS): readonly Piece[] {
  const names = regex.namedGroups();
  const pieces: Piece[] = [];
  let end = 0;
  for (const { 0: whole, 1: dollar, 2: number, 3: braced, 4: bare, index } of template.matchAll(
    GROUP,
  )) {
    const name = braced ?? bare ?? '';
    const isKnown = /^\d+$/.test(name) || Object.hasOwn(names, name);
    // `${host}` is a dollar sign before a placeholder, and `$x` is text, unless a group has that name.
    if (dollar === undefined && number === undefined && !isKnown) continue;
    pieces.push({ literal: template.slice(end, index) });
    if (dollar !== undefined) pieces.push({ literal: '$' });
    else pieces.push({ group: /^\d+$/.test(number ?? name) ? Number(number ?? name) : name });
    end = index + whole.length;
  }
  return [...pieces, { literal: template.slice(end) }];
}

function replaceAll(
  regex: RE2JS,
  pieces: readonly Piece[],
  text: string,
  expand: (literal: string) => string,
  status: number,
): string {
  const matcher = regex.matcher(text);
  const instructions = regex.programSize();
  let stepsLeft = FREE_REPLACE_STEPS;
  let isOver: (() => boolean) | null = null;
  let result = '';
  let end = 0;
  let first = true;
  while (matcher.find()) {
    stepsLeft -= (text.length - end) * instructions;
    if (stepsLeft < 0) isOver ??= timeLimit(MAX_REPLACE_MS);
    if (isOver?.() === true) throw tooCostly(text, status);
    const [from, to] = [matcher.start(), matcher.end()];
    // An empty match right after another match does not count: `.*` matches a text once.
    if (!first && from === to && from === end) continue;
    first = false;
    result += text.slice(end, from);
    for (const piece of pieces) {
      if ('literal' in piece) result += expand(piece.literal);
      // A group that the pattern does not have is replaced with nothing, as in Go.
      else if (typeof piece.group === 'string') result += matcher.group(piece.group) ?? '';
      else if (piece.group <= matcher.groupCount()) result += matcher.group(piece.group) ?? '';
    }
    end = to;
  }
  return result + text.slice(end);
}

/** Whether this process has worked for so long since the call. On a busy machine, more time passes meanwhile. */
function timeLimit(limitMs: number): () => boolean {
  const [startMs, cpu] = [performance.now(), process.cpuUsage()];
  return () => {
    if (performance.now() - startMs < limitMs) return false;
    const { user, system } = process.cpuUsage(cpu);
    return user + system >= limitMs * 1000;
  };
}

/** What a message quotes of a pattern, which may be secret. A short part is only syntax, such as `(?<`, and so is a count. */
const QUOTED_PART = /: `(?!\{[\d,]+\}`$)[^]{5,}`$/;

function compile(source: string): RE2JS {
  try {
    return RE2JS.compile(source);
  } catch (error) {
    const why =
      error instanceof RE2JSSyntaxException
        ? error.message.replace(/^error parsing regexp: /, '').replace(QUOTED_PART, '')
        : 'not RE2 syntax';
    throw new HubgateError('invalid-pattern', `Invalid regular expression: ${why}`, {
      cause: error,
    });
  }
}

/**
 * The meaning of `*`. `edges`: any text at the beginning and end of the pattern, a literal `*` elsewhere.
 * `any`: any text, at every position.
 */
export type WildcardKind = 'edges' | 'any';

/** Creates a function that matches texts, which clients may have chosen, with a pattern in linear time. */
export function compileWildcard(pattern: string, kind: WildcardKind): (text: string) => boolean {
  if (kind === 'edges' || !pattern.slice(1, -1).includes('*')) {
    return likeAtEdges([{ text: pattern, isLiteral: false }]);
  }
  const source = pattern.split('*').map(escaped).join('(?s:.*)');
  const compiled = compilePattern(`^${source}$`);
  return (text) => compiled.test(text);
}

function escaped(text: string): string {
  return text.replace(/[\\^$.|?+()[\]{}]/g, '\\$&');
}
