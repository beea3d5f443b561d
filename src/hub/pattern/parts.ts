import { HubgateError } from '../../kernel/error.ts';

/** A part of a component: fixed text, or a group with a prefix and a suffix. */
export interface Part {
  /** null for fixed text, which is in `prefix`. */
  readonly group: Group | null;
  readonly prefix: string;
  readonly suffix: string;
  readonly modifier: '' | '?' | '*' | '+';
}

/**
 * `segment` ends at the delimiter of the component; `regexp` is the text that the author wrote in
 * parentheses.
 */
export type Group =
  | { readonly kind: 'segment' }
  | { readonly kind: 'wildcard' }
  | { readonly kind: 'regexp'; readonly body: string };

/** A pattern string without any of these characters stands for itself. */
const MEANT = /[\\*+?{}:(]/;

/**
 * Parses the pattern string of one component (URL Pattern §2.1, "parse a pattern string"). `prefix` is the
 * character that belongs to the group after it: `/` in a path, otherwise empty.
 *
 * @throws HubgateError `invalid-pattern`
 */
export function parseParts(text: string, prefix: string): readonly Part[] {
  if (!MEANT.test(text)) {
    return text === '' ? [] : [{ group: null, prefix: text, suffix: '', modifier: '' }];
  }
  const tokens = new TokenReader(tokenize(text));
  const names = new Set<string>();
  const parts: Part[] = [];
  let fixed = '';
  const flush = (): void => {
    if (fixed !== '') parts.push({ group: null, prefix: fixed, suffix: '', modifier: '' });
    fixed = '';
  };
  const add = (part: Part): void => {
    if (part.group === null && part.modifier === '') {
      fixed += part.prefix;
      return;
    }
    flush();
    if (part.group !== null || part.prefix !== '') parts.push(part);
  };
  while (!tokens.atEnd()) {
    const character = tokens.take('char');
    const group = readGroup(tokens, names);
    if (group !== null) {
      const before = character ?? '';
      const belongs = before !== '' && before === prefix;
      if (!belongs) fixed += before;
      // Text before a group ends here, even if the group itself adds none.
      flush();
      add({ group, prefix: belongs ? before : '', suffix: '', modifier: readModifier(tokens) });
      continue;
    }
    const plain = character ?? tokens.take('escaped-char');
    if (plain !== undefined) {
      fixed += plain;
      continue;
    }
    if (tokens.take('open') === undefined) throw refusal(`unexpected ${tokens.describe()}`);
    const before = readText(tokens);
    const inner = readGroup(tokens, names);
    const after = readText(tokens);
    if (tokens.take('close') === undefined) throw refusal('a "{" without its "}"');
    const modifier = readModifier(tokens);
    add({
      group: inner,
      prefix: inner === null ? before + after : before,
      suffix: inner === null ? '' : after,
      modifier,
    });
  }
  flush();
  return parts;
}

function readGroup(tokens: TokenReader, names: Set<string>): Group | null {
  const name = tokens.take('name');
  if (name !== undefined) {
    if (names.has(name)) throw refusal(`the name ":${name}" twice in one component`);
    names.add(name);
  }
  const body = tokens.take('regexp');
  if (body === '.*') return { kind: 'wildcard' };
  if (body !== undefined) return { kind: 'regexp', body };
  if (name !== undefined) return { kind: 'segment' };
  return tokens.take('asterisk') === undefined ? null : { kind: 'wildcard' };
}

function readText(tokens: TokenReader): string {
  let text = '';
  for (;;) {
    const next = tokens.take('char') ?? tokens.take('escaped-char');
    if (next === undefined) return text;
    text += next;
  }
}

function readModifier(tokens: TokenReader): Part['modifier'] {
  const found = tokens.take('other-modifier') ?? tokens.take('asterisk');
  return found === '?' || found === '+' || found === '*' ? found : '';
}

class TokenReader {
  readonly #tokens: readonly Token[];
  #at = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  /** The value of the next token if it has that type; the token is consumed. */
  take(type: Token['type']): string | undefined {
    const token = this.#tokens[this.#at];
    if (token?.type !== type) return undefined;
    this.#at += 1;
    return token.value;
  }

  atEnd(): boolean {
    return this.#tokens[this.#at]?.type === 'end';
  }

  describe(): string {
    const token = this.#tokens[this.#at];
    return token === undefined ? 'end' : `"${token.value}" at ${token.index}`;
  }
}

/** One token of a pattern string (URL Pattern §2.1.1). `end` is the last token of every list. */
export interface Token {
  readonly type:
    | 'open'
    | 'close'
    | 'regexp'
    | 'name'
    | 'char'
    | 'escaped-char'
    | 'other-modifier'
    | 'asterisk'
    | 'end'
    | 'invalid-char';
  /** Its position, in UTF-16 units. */
  readonly index: number;
  /** The name without its colon, the group without its parentheses, the character itself. */
  readonly value: string;
}

const SINGLE: Readonly<Record<string, Token['type']>> = {
  '*': 'asterisk',
  '+': 'other-modifier',
  '?': 'other-modifier',
  '{': 'open',
  '}': 'close',
};
const NAME_START = /[$_\p{ID_Start}]/u;
const NAME_PART = /[$\u200c\u200d\p{ID_Continue}]/u;
const NOT_ASCII = /[^\0-\x7f]/;

/** Splits a pattern string into tokens. A character without a meaning becomes an `invalid-char`. */
export function tokenize(text: string): readonly Token[] {
  const tokens: Token[] = [];
  for (let at = 0; at < text.length; ) {
    const token = tokenAt(text, at);
    tokens.push(token);
    at += lengthOf(token);
  }
  tokens.push({ type: 'end', index: text.length, value: '' });
  return tokens;
}

/** Whether a token stands for its own character and may separate components. */
export function isPlain(token: Token | undefined, character: string): boolean {
  return (
    token?.value === character &&
    (token.type === 'char' || token.type === 'escaped-char' || token.type === 'invalid-char')
  );
}

function tokenAt(text: string, index: number): Token {
  const character = characterAt(text, index);
  if (character === '\\') {
    const escaped = characterAt(text, index + 1);
    const type = escaped === '' ? 'invalid-char' : 'escaped-char';
    return { type, index, value: escaped === '' ? character : escaped };
  }
  if (character === ':') return groupToken('name', index, character, nameAfter(text, index + 1));
  if (character === '(') return groupToken('regexp', index, character, regexpAt(text, index + 1));
  return { type: SINGLE[character] ?? 'char', index, value: character };
}

function groupToken(type: 'name' | 'regexp', index: number, opener: string, value: string): Token {
  return value === '' ? { type: 'invalid-char', index, value: opener } : { type, index, value };
}

function lengthOf(token: Token): number {
  if (token.type === 'regexp') return token.value.length + 2;
  return token.value.length + (token.type === 'name' || token.type === 'escaped-char' ? 1 : 0);
}

function nameAfter(text: string, start: number): string {
  let end = start;
  for (;;) {
    const character = characterAt(text, end);
    if (!(end === start ? NAME_START : NAME_PART).test(character)) return text.slice(start, end);
    end += character.length;
  }
}

/** The group that begins at `start`; nothing if it is empty, unbalanced, nested or not ASCII. */
function regexpAt(text: string, start: number): string {
  if (text[start] === '?') return '';
  let depth = 1;
  for (let at = start; at < text.length; at += 1) {
    const character = text[at];
    if (character === '\\') at += 1;
    else if (character === '(' && text[at + 1] !== '?') return '';
    else if (character === '(') depth += 1;
    else if (character === ')') depth -= 1;
    if (depth === 0) {
      const body = text.slice(start, at);
      return NOT_ASCII.test(body) ? '' : body;
    }
  }
  return '';
}

function characterAt(text: string, index: number): string {
  const code = text.codePointAt(index);
  return code === undefined ? '' : String.fromCodePoint(code);
}

/** The language of a component as a tree: a regular expression without captures. */
export type Syntax =
  | { readonly kind: 'char'; readonly code: number }
  /** One character of a set of ASCII characters. */
  | { readonly kind: 'set'; readonly set: AsciiSet }
  | { readonly kind: 'any' }
  | { readonly kind: 'sequence'; readonly items: readonly Syntax[] }
  | { readonly kind: 'choice'; readonly items: readonly Syntax[] }
  /** `max` may be Infinity. */
  | { readonly kind: 'repeat'; readonly item: Syntax; readonly min: number; readonly max: number }
  | { readonly kind: 'assert'; readonly at: 'start' | 'end' | 'word' | 'not-word' };

/** 128 flags. The URL parser leaves only ASCII in a component. */
export type AsciiSet = Uint8Array;

export function literal(text: string): readonly Syntax[] {
  return Array.from(text, (character) => ({ kind: 'char', code: character.codePointAt(0) ?? 0 }));
}

/**
 * The error of a pattern that is malformed, or that cannot be matched in linear time. Its code is
 * `invalid-pattern`.
 */
export function refusal(why: string, cause?: unknown): HubgateError {
  return new HubgateError('invalid-pattern', `invalid URL Pattern: ${why}`, { cause });
}
