import { isUtf8 } from 'node:buffer';
import { inspect } from 'node:util';
import { HubgateError } from './error.ts';

/** The same symbol in every copy of this package. */
const IS_SECRET = Symbol.for('hubgate.Secret');

/** Replaces secrets in printed output; it is never a real value. */
export const REDACTED = '[redacted]';
const PLACEHOLDERS_ONLY = /^(?:\{(?:env|file)\.[^{}]+\})+$/;

/**
 * A value that must not be printed. Configuration, logs and errors show `[redacted]` instead. A value that
 * consists only of placeholders (`{env.JWT_KEY}`) reveals nothing, so it is printed as written.
 */
export class Secret {
  readonly #value: string | Buffer;

  /** A program and its libraries may have several copies of this package, whose configurations can be mixed. */
  static [Symbol.hasInstance](value: unknown): boolean {
    return typeof value === 'object' && value !== null && IS_SECRET in value;
  }

  get [IS_SECRET](): true {
    return true;
  }

  /**
   * @param value text, or the bytes of a key, which count as text if they are valid UTF-8
   * @throws HubgateError `invalid-argument`
   */
  constructor(value: string | Uint8Array) {
    if (typeof value === 'string') this.#value = value;
    else if (value instanceof Uint8Array) this.#value = textOrBytes(value);
    else throw new HubgateError('invalid-argument', 'A Secret is made from text, or from bytes');
  }

  /** Whether the value can be used as text. */
  get isText(): boolean {
    return typeof this.#value === 'string';
  }

  /** The value itself. Call this where the value is used, never where it is passed on. */
  reveal(): string {
    // The value as text, with one character per byte if it is not valid UTF-8. Use it for comparisons, never
    // as a key.
    return typeof this.#value === 'string' ? this.#value : this.#value.toString('latin1');
  }

  /** The bytes of a key: those of its file, or of its text in UTF-8. */
  bytes(): Buffer {
    return typeof this.#value === 'string' ? Buffer.from(this.#value, 'utf8') : this.#value;
  }

  toString(): string {
    const value = this.#value;
    return typeof value === 'string' && PLACEHOLDERS_ONLY.test(value) ? value : REDACTED;
  }

  toJSON(): string {
    return this.toString();
  }

  [inspect.custom](): string {
    return this.toString();
  }
}

function textOrBytes(bytes: Uint8Array): string | Buffer {
  const copy = Buffer.from(bytes);
  return isUtf8(copy) ? copy.toString('utf8') : copy;
}

/** Names of header fields and parameters whose values grant access. This is the only such list. */
const SECRET_NAME =
  /(?:^|[-_.[])(?:authorization|cookie)(?:$|[[\]])|^code$|api[-_]?key|(?:access|private)[-_]key|secret|passw(?:or)?d|token|session[-_]?id|credential|(?:^|[-_[])(?:auth|jwt|sig|signature)(?:$|[[\]])/i;

/**
 * Whether the value of a header field or parameter with this name must not be printed: not in a log, not in
 * the configuration that the admin API shows, and not in a message.
 */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name);
}

const ALGORITHM = /^(?:[A-Za-z]{2,5}\d{1,4}|[Ee]d(?:DSA|25519)|none|hmac-sha\d{3})$/;

/** Whether a text is clearly the name of an algorithm, not a key that was written in its place. */
export function looksLikeAlgorithm(text: string): boolean {
  return ALGORITHM.test(text);
}

/** What ends a name or a value in a URL or a text, also percent-encoded, once or several times. */
const DELIMITER = /[&#;?\s"]|%(?:25)*(?:09|0a|0d|2[0236]|3[bf])/i;
const EQUALS = /=|%(?:25)*3d/gi;
/** Further signs of equality, as in `==`, and a quote. They are not part of the value. */
const BEFORE_VALUE = /(?:=|%(?:25)*3d)*(?:["']|%(?:25)*2[27])?/iy;
const VALUE = /[^&#;\s"]+/y;
/** Longest name of a parameter that counts, in characters. */
const MAX_NAME = 256;
/** Up to the last `@` before the path, as URLs are read; also percent-encoded, once or several times. */
const USER_INFO =
  /(?<=:\/\/)[^\s/?#"`]+(?=@)|(?<=%(?:25)*3a(?:%(?:25)*2f){2})(?:(?!%(?:25)*(?:2f|3f|23))[^\s/?&#"`])+(?=%(?:25)*40)/gi;
const CREDENTIAL =
  /\b(basic|bearer|dpop|gnap|negotiate|ntlm)((?:\s|\+|%(?:25)*20){1,8})([\w.~+/%-]+=*)/gi;
/** The name of a parameter of a challenge: `Bearer realm="x"`. */
const PARAMETER_OF_CHALLENGE = /^[a-z][a-z_-]{0,31}=$/i;
/** A word behind the name of a scheme that is shorter is not a token. */
const MIN_TOKEN = 8;

/** A part of a text. */
export interface TextRange {
  readonly start: number;
  readonly end: number;
}

/**
 * A URL, a header field or any other text without credentials: without user info, without the values of secret
 * parameters (`token=…`, at any place, also in a URL that is encoded as the value of another parameter), and
 * without the credentials of authentication schemes (`Bearer …`, `Basic …`).
 */
export function withoutSecretParts(text: string, sign = REDACTED): string {
  return withoutRanges(text, secretParts(text), sign);
}

/** A text without these values, wherever they are in it. Empty values are not looked for. */
export function withoutValues(text: string, values: readonly string[]): string {
  return values.reduce(
    (left, value) => (value === '' ? left : left.replaceAll(value, REDACTED)),
    text,
  );
}

/** The same with the credentials of authentication schemes left in. */
export function withoutSecretParameters(text: string, sign: string): string {
  return withoutRanges(text, [...userInfos(text), ...secretParameters(text)], sign);
}

/** The parts of a text that {@link withoutSecretParts} hides, in no order. They may overlap. */
export function secretParts(text: string): readonly TextRange[] {
  return [...userInfos(text), ...secretParameters(text), ...credentials(text), ...tokens(text)];
}

/** A JSON Web Token in compact form (RFC 7515 §3.1, RFC 7516 §3.1), whatever it stands behind. */
const JSON_WEB_TOKEN = /(?<![\w-])eyJ[\w-]{4,}\.[\w-]*\.[\w-]*(?:\.[\w-]*){0,2}/g;

function tokens(text: string): TextRange[] {
  if (!text.includes('eyJ')) return [];
  return [...text.matchAll(JSON_WEB_TOKEN)].map(rangeOf);
}

function rangeOf({ 0: { length }, index }: RegExpExecArray): TextRange {
  return { start: index, end: index + length };
}

function withoutRanges(text: string, ranges: readonly TextRange[], sign: string): string {
  let shown = '';
  let from = 0;
  for (const { start, end } of [...ranges].sort((a, b) => a.start - b.start)) {
    if (start >= from) shown += text.slice(from, start) + sign;
    from = Math.max(from, end);
  }
  return shown + text.slice(from);
}

function userInfos(text: string): TextRange[] {
  return [...text.matchAll(USER_INFO)].map(rangeOf);
}

function secretParameters(text: string): TextRange[] {
  const found: TextRange[] = [];
  let from = 0;
  for (const equals of text.matchAll(EQUALS)) {
    const { index } = equals;
    // A part of a hidden value.
    if (index < from) continue;
    const before = text.slice(Math.max(from, index - MAX_NAME), index);
    from = index + equals[0].length;
    if (!isSecretParameter(before.split(DELIMITER).at(-1) ?? '')) continue;
    const start = endOf(BEFORE_VALUE, text, from);
    from = endOf(VALUE, text, start);
    if (from > start) found.push({ start, end: from });
  }
  return found;
}

/** Where the match of a sticky pattern at an index ends; the index itself if it does not match. */
function endOf(pattern: RegExp, text: string, index: number): number {
  pattern.lastIndex = index;
  return pattern.test(text) ? pattern.lastIndex : index;
}

function isSecretParameter(name: string): boolean {
  const read = decoded(name);
  // In a text, other characters may stand before the name: `(code=…`, `/token=…`.
  return isSecretName(read) || isSecretName(/[^/\\:,|(<{['`]*$/.exec(read)?.[0] ?? '');
}

/** Names are decoded as the hub and apps decode them: `%61uthorization` means `authorization`. */
function decoded(name: string): string {
  let read = name;
  // A name in a URL inside a URL is encoded twice.
  for (let depth = 0; depth < 3 && read.includes('%'); depth += 1) {
    read = new URLSearchParams(`=${read.replaceAll('&', '%26')}`).get('') ?? '';
  }
  return read;
}

function credentials(text: string): TextRange[] {
  const found: TextRange[] = [];
  for (const { 0: all, 1: scheme = '', 2: space = '', 3: token = '', index } of text.matchAll(
    CREDENTIAL,
  )) {
    const end = index + all.length;
    const isCredential =
      scheme.toLowerCase() === 'basic'
        ? isUserAndPassword(token)
        : token.length >= MIN_TOKEN &&
          !(PARAMETER_OF_CHALLENGE.test(token) && /^["\w]/.test(text.slice(end)));
    if (isCredential) found.push({ start: index + scheme.length + space.length, end });
  }
  return found;
}

/** Whether a word is the base64 of `user:password`. Other words stand behind `basic` in ordinary texts. */
function isUserAndPassword(word: string): boolean {
  const base64 = word.replaceAll(/%(?:25)*(2b|2f|3d)/gi, (_all, code: string) =>
    String.fromCodePoint(Number.parseInt(code, 16)),
  );
  return /^[\w+/-]+=*$/.test(base64) && Buffer.from(base64, 'base64').includes(':');
}
