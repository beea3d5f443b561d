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
