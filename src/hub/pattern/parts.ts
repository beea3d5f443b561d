import { refusal } from './syntax.ts';
import { type Token, tokenize } from './tokens.ts';

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
