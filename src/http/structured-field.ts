/*
 * Lists of RFC 9651 with one extension: a member may follow a key and "=", as in a Dictionary, but several
 * members may have the same key. `structured-headers` keeps only the last of them.
 */

/** A value with its type. A display string is a `string` here; a date is in seconds since 1970. */
export type BareItem =
  | { readonly kind: 'string' | 'token' | 'bytes'; readonly value: string }
  | { readonly kind: 'number' | 'date'; readonly value: number }
  | { readonly kind: 'boolean'; readonly value: boolean };

export interface Member {
  /** The text before "="; null for a member of a List. */
  readonly key: string | null;
  /** One item, or those of an inner list. */
  readonly items: readonly BareItem[];
  readonly parameters: ReadonlyMap<string, BareItem>;
}

/** The position at which a field is invalid. */
export class FieldSyntaxError extends Error {
  /** Offset in the field, in characters. */
  readonly at: number;

  constructor(at: number, message: string) {
    super(message);
    this.at = at;
  }
}

const TRUE: BareItem = { kind: 'boolean', value: true };
const KEY = /[a-z*][a-z0-9_\-.*]*/y;
const TOKEN = /[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*/y;
const INTEGER = /-?\d{1,15}/y;
const NUMBER = /-?\d{1,15}(?:\.\d{1,3})?/y;
const STRING = /"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"/y;
const DISPLAY = /%"((?:[\x20\x21\x23\x24\x26-\x7e]|%[0-9a-f]{2})*)"/y;
const BYTES = /:([A-Za-z0-9+/=]*):/y;
const BOOLEAN = /\?([01])/y;

/**
 * The members of a list, at most `most` of them; further ones are not examined.
 *
 * @throws FieldSyntaxError
 */
export function parseMembers(field: string, most: number): Member[] {
  const text = new Reader(field);
  const members: Member[] = [];
  text.skip(' \t');
  while (!text.atEnd && members.length < most) {
    members.push(member(text));
    text.skip(' \t');
    if (text.atEnd) break;
    text.expect(',');
    text.skip(' \t');
    if (text.atEnd) throw text.fault('a member after ","');
  }
  return members;
}

function member(text: Reader): Member {
  const key = text.lookAhead(/[a-z*][a-z0-9_\-.*]*=/y) ? text.need(KEY, 'a key')[0] : null;
  if (key !== null) text.expect('=');
  if (!text.take('(')) return { key, items: [bareItem(text)], parameters: parameters(text) };
  const items: BareItem[] = [];
  for (;;) {
    text.skip(' ');
    if (text.take(')')) return { key, items, parameters: parameters(text) };
    items.push(bareItem(text));
    // An item of an inner list may have parameters, which are ignored here.
    parameters(text);
    if (!text.next(' ') && !text.next(')')) throw text.fault('" " or ")"');
  }
}

function parameters(text: Reader): Map<string, BareItem> {
  const found = new Map<string, BareItem>();
  while (text.take(';')) {
    text.skip(' ');
    const [key] = text.need(KEY, 'the name of a parameter');
    found.set(key, text.take('=') ? bareItem(text) : TRUE);
  }
  return found;
}

function bareItem(text: Reader): BareItem {
  if (text.next('"')) {
    const [, value = ''] = text.need(STRING, 'a string in ASCII, with \\" and \\\\');
    return { kind: 'string', value: value.replace(/\\(.)/g, '$1') };
  }
  if (text.next('%')) {
    const [, value = ''] = text.need(DISPLAY, 'a display string');
    return { kind: 'string', value: text.decode(value) };
  }
  if (text.next(':')) {
    const [, value = ''] = text.need(BYTES, 'a byte sequence in base64');
    return { kind: 'bytes', value: Buffer.from(value, 'base64').toString('utf8') };
  }
  if (text.next('?')) return { kind: 'boolean', value: text.need(BOOLEAN, '?0 or ?1')[1] === '1' };
  if (text.lookAhead(/[-\d]/y)) {
    return { kind: 'number', value: Number(text.need(NUMBER, 'a number')[0]) };
  }
  // A Date, in seconds since 1970 (RFC 9651 §3.3.7).
  if (text.take('@')) return { kind: 'date', value: Number(text.need(INTEGER, 'a date')[0]) };
  return { kind: 'token', value: text.need(TOKEN, 'a value such as "https://example.com/1"')[0] };
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  get atEnd(): boolean {
    return this.#at >= this.#text.length;
  }

  next(character: string): boolean {
    return this.#text[this.#at] === character;
  }

  lookAhead(pattern: RegExp): boolean {
    pattern.lastIndex = this.#at;
    return pattern.test(this.#text);
  }

  take(character: string): boolean {
    if (!this.next(character)) return false;
    this.#at += 1;
    return true;
  }

  skip(characters: string): void {
    while (!this.atEnd && characters.includes(this.#text[this.#at] ?? '')) this.#at += 1;
  }

  expect(character: string): void {
    if (!this.take(character)) throw this.fault(`"${character}"`);
  }

  need(pattern: RegExp, expected: string): RegExpExecArray {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#text);
    if (match === null) throw this.fault(expected);
    this.#at = pattern.lastIndex;
    return match;
  }

  decode(value: string): string {
    try {
      return decodeURIComponent(value);
    } catch {
      throw this.fault('a display string of UTF-8');
    }
  }

  fault(expected: string): FieldSyntaxError {
    return new FieldSyntaxError(this.#at, `${expected} expected at character ${this.#at + 1}`);
  }
}
