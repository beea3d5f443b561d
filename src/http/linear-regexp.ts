import { RE2JS, RE2JSSyntaxException } from 're2js';
import { HubgateError } from '../kernel/error.ts';
import { HttpError } from './errors.ts';

/** A regular expression that takes linear time whatever it is matched against. */
export interface Pattern {
  /** Groups that have names, with their numbers. */
  readonly named: readonly (readonly [name: string, index: number])[];
  /**
   * Whether anything of the text matches, without groups: much cheaper than the search for them,
   * but where the pattern remembers long stretches of text (`a.{14}$`) much dearer.
   */
  test(text: string): boolean;
  /** The groups of the first match, the whole match first, unmatched ones empty; null for none. */
  match(text: string): readonly string[] | null;
  /**
   * A function that replaces every match. In the template `$1`, `${1}` and `${name}` stand for
   * groups, `$$` for a dollar; `expand` is given what stands between them, never what was matched,
   * and what it returns is taken as it is.
   */
  replacer(template: string): (text: string, expand: (literal: string) => string) => string;
}

/** Characters of a client's text that a regular expression is run over, which takes some 2 ms. */
export const MAX_MATCHED_LENGTH = 16 * 1024;

/**
 * A text that a client has chosen, for a regular expression of the configuration.
 *
 * @throws HttpError 431 beyond {@link MAX_MATCHED_LENGTH}: whether it matches cannot be said
 */
export function matchable(text: string): string {
  if (text.length <= MAX_MATCHED_LENGTH) return text;
  throw new HttpError(431, `${text.length} characters are too many for a regular expression`);
}

/** A piece of a template: text, or the group that stands there. */
type Piece = { readonly literal: string } | { readonly group: number | string };

const GROUP = /\$(?:(\$)|(\d+)|\{(\w+)\})/g;

/**
 * Compiles RE2 syntax. Configuration chooses the pattern, clients choose the text: V8's engine
 * would let a client block the process.
 *
 * @throws HubgateError `invalid-pattern`
 */
export function compilePattern(source: string): Pattern {
  const regex = compile(source);
  return {
    named: Object.entries(regex.namedGroups()),
    test: (text) => regex.test(text),
    match(text) {
      const matcher = regex.matcher(text);
      if (!matcher.find()) return null;
      const groups: string[] = [];
      for (let i = 0; i <= matcher.groupCount(); i += 1) groups.push(matcher.group(i) ?? '');
      return groups;
    },
    replacer(template) {
      const pieces = piecesOf(template, regex);
      return (text, expand) => replaceAll(regex, pieces, text, expand);
    },
  };
}

function piecesOf(template: string, regex: RE2JS): readonly Piece[] {
  const names = regex.namedGroups();
  const pieces: Piece[] = [];
  let end = 0;
  for (const { 0: whole, 1: dollar, 2: number, 3: name = '', index } of template.matchAll(GROUP)) {
    const isKnown = /^\d+$/.test(name) || Object.hasOwn(names, name);
    // `${host}` is a dollar before a placeholder, unless a group has that name.
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
): string {
  const matcher = regex.matcher(text);
  let result = '';
  let end = 0;
  let first = true;
  while (matcher.find()) {
    const [from, to] = [matcher.start(), matcher.end()];
    // An empty match right behind another is none: `.*` matches a text once.
    if (!first && from === to && from === end) continue;
    first = false;
    result += text.slice(end, from);
    for (const piece of pieces) {
      if ('literal' in piece) result += expand(piece.literal);
      // A group that the pattern does not have stands for nothing, as in Go.
      else if (typeof piece.group === 'string') result += matcher.group(piece.group) ?? '';
      else if (piece.group <= matcher.groupCount()) result += matcher.group(piece.group) ?? '';
    }
    end = to;
  }
  return result + text.slice(end);
}

function compile(source: string): RE2JS {
  try {
    return RE2JS.compile(source);
  } catch (error) {
    const why =
      error instanceof RE2JSSyntaxException
        ? error.message.replace(/^error parsing regexp: /, '')
        : 'not RE2 syntax';
    throw new HubgateError('invalid-pattern', `Invalid regular expression: ${why}`, {
      cause: error,
    });
  }
}

/** What `*` stands for. `edges`: any text, at the beginning and end of the pattern; elsewhere itself. `any`: any text, wherever it stands. */
export type WildcardKind = 'edges' | 'any';

/** Whether texts, which clients may have chosen, are like a pattern: in linear time. */
export function compileWildcard(pattern: string, kind: WildcardKind): (text: string) => boolean {
  if (kind === 'edges' || !pattern.slice(1, -1).includes('*')) return atEdges(pattern);
  const source = pattern.split('*').map(escaped).join('(?s:.*)');
  const compiled = compilePattern(`^${source}$`);
  return (text) => compiled.test(text);
}

function atEdges(pattern: string): (text: string) => boolean {
  if (pattern === '*') return () => true;
  const isOpen = pattern.startsWith('*');
  const text = pattern.slice(isOpen ? 1 : 0, pattern.endsWith('*') ? -1 : undefined);
  if (isOpen && pattern.endsWith('*')) return (whole) => whole.includes(text);
  if (isOpen) return (whole) => whole.endsWith(text);
  return pattern.endsWith('*') ? (whole) => whole.startsWith(text) : (whole) => whole === text;
}

function escaped(text: string): string {
  return text.replace(/[\\^$.|?+()[\]{}]/g, '\\$&');
}
