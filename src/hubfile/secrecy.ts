import { nearestName } from '../config/problem.ts';
import { isSecretName, looksLikeAlgorithm, secretParts, type TextRange } from '../kernel/secret.ts';

/** Words that are followed by a secret. */
const SECRET_WORDS = new Set([
  'jwt',
  'key',
  'publisher_jwt',
  'subscriber_jwt',
  'client_secret',
  'mac_key',
  'password',
  'eab',
  'zerossl',
]);
/** Their first argument is a provider, often followed by a token. */
const PROVIDER_WORDS = new Set(['dns', 'acme_dns']);
/** They have no secret on their own line, but a block with secrets, which are easily written in front of it. */
const BLOCK_WORDS = new Set(['basicauth', 'basic_auth', 'acme_eab', 'publisher', 'subscriber']);
const TOKEN_WORDS = new Set(['mint', 'exchange']);
/** A header field in the notation of directives, or a parameter with its value. */
const FIELD = /^[+\-?>]?([\w-]+)(?::|=.*)?$/;
const PLACEHOLDER = /^\{[^{}"\s:]+\}$/;
const WORD = /"(?:\\.|[^"\\])*"?|`[^`]*`?|[^\s"`]\S*/g;
/** A stray line of a key, or a token: long, without dots, of mixed letters and digits. */
const KEY_MATERIAL =
  /(?<![\w+/-])(?=[\w+/-]*[a-z])(?=[\w+/-]*[A-Z])(?=[\w+/-]*\d)[\w+/-]{40,}={0,2}/g;
/** Up to the end of the line, because the end of an unquoted or unclosed value is unknown. */
const SECRET_MEMBER =
  /(?<=(?:^|[\s{,-])["']?(?:key|macKey|clientSecret|secret|value|hash|jwt|token|password|externalAccount)["']?\s*:\s*)(?!["']?\{(?:env|file)\.[^{}"']*\}["']?[\s,}]*$)[^\s{].*$/g;
/** Hashes of bcrypt and argon2. */
const PASSWORD_HASH = /\$(?:2[abxy]|argon2\w*)\$\S+/g;
/** A password with a slash, which makes the URL of a server invalid. */
const SERVER_PASSWORD = /(?<=(?:rediss?|postgres(?:ql)?):?\/+)[^\s"`/][^\s"`]*(?=@)/g;
/** The same without its scheme. */
const USER_WITHOUT_SCHEME = /(?<=^\s*url\s+["`]?)[^\s"`/]+(?=@)/g;
const HIDDEN = '[…]';

/** Whether the arguments of a directive may be secret. */
export function isSecretWord(name: string): boolean {
  return SECRET_WORDS.has(name);
}

/** Whether the name of an unknown option looks like one that is followed by a secret. */
export function mayMeanSecret(name: string): boolean {
  const known = [...SECRET_WORDS, 'token', 'api_token', 'auth_token', 'access_key_id'];
  return isSecretName(name) || nearestName(name, known) !== undefined;
}

/**
 * A line without possible secrets: the argument of `jwt` and similar words, the values of credential headers,
 * user info in URLs. The marked range is mapped to the new text.
 */
export function hideSecrets(line: string, mark: TextRange): TextRange & { readonly text: string } {
  return hideRanges(line, mark, secretRanges(line));
}

/** The same without the words after the first one. */
export function hideArguments(line: string, mark: TextRange): ReturnType<typeof hideSecrets> {
  return hideRanges(line, mark, hideable([...line.matchAll(WORD)].map(toRange).slice(1)));
}

/** A line of YAML or JSON without the values of members that could be secret. */
export function hideMembers(line: string, mark: TextRange): TextRange & { readonly text: string } {
  const members = [...line.matchAll(SECRET_MEMBER)].map(toRange);
  return hideRanges(line, mark, [...members, ...secretTexts(line)]);
}

function hideRanges(
  line: string,
  mark: TextRange,
  ranges: readonly TextRange[],
): TextRange & { readonly text: string } {
  let text = '';
  let from = 0;
  let { start, end } = mark;
  for (const range of [...ranges].sort((a, b) => a.start - b.start || b.end - a.end)) {
    if (range.start < from) continue;
    text += line.slice(from, range.start);
    start = moved(start, mark.start, range, text.length);
    end = moved(end, mark.end, range, text.length);
    text += HIDDEN;
    from = range.end;
  }
  text += line.slice(from);
  return { text, start: Math.min(start, text.length), end: Math.min(end, text.length) };
}

/** The new position of an offset when a range is replaced by the sign for hidden text. */
function moved(current: number, original: number, range: TextRange, hiddenAt: number): number {
  if (original <= range.start) return current;
  const behind = Math.max(0, original - range.end);
  return hiddenAt + HIDDEN.length + behind;
}

function secretRanges(line: string): TextRange[] {
  const words = [...line.matchAll(WORD)].map(toRange);
  const opener = words.findIndex(
    ({ text }, index) =>
      (isSecretWord(text) && (text !== 'key' || index === 0)) ||
      (PROVIDER_WORDS.has(text) && index === 0) ||
      isFollowedByMistake(words, index) ||
      isSecretField(text, index),
  );
  const ranges = secretTexts(line);
  if (opener !== -1) {
    const word = words[opener]?.text ?? '';
    const isNamed = PROVIDER_WORDS.has(word) || word === 'issuer';
    const values = words.slice(opener + (isNamed ? 2 : 1));
    // A secret with spaces may have been written without quotes, so the words after the first one are shown
    // only if they are clearly an algorithm.
    const algorithm = values.length === 2 && looksLikeAlgorithm(values[1]?.text ?? '');
    const secret = algorithm ? values.slice(0, 1) : values;
    ranges.push(...hideable(secret));
  }
  return ranges;
}

/** Whether a secret may have been written behind this word of a line, where none belongs. */
function isFollowedByMistake(words: readonly { readonly text: string }[], index: number): boolean {
  const text = words[index]?.text ?? '';
  if (index === 1) return TOKEN_WORDS.has(text) && words[0]?.text === 'token';
  if (index !== 0) return false;
  // The issuer of a hub; those of certificates have no secret.
  if (text === 'issuer') return /^["`]?https?:/.test(words[1]?.text ?? '');
  return BLOCK_WORDS.has(text) && !words.some((word) => word.text === '{');
}

/** What is secret wherever it stands. */
function secretTexts(line: string): TextRange[] {
  const patterns = [SERVER_PASSWORD, USER_WITHOUT_SCHEME, KEY_MATERIAL, PASSWORD_HASH];
  const found = patterns.flatMap((pattern) => [...line.matchAll(pattern)].map(toRange));
  const parts = secretParts(line).filter(
    ({ start, end }) => !PLACEHOLDER.test(line.slice(start, end)),
  );
  return [...found, ...parts];
}

function hideable<Word extends { readonly text: string }>(words: readonly Word[]): Word[] {
  return words.filter(({ text }) => text !== '{' && !PLACEHOLDER.test(text));
}

/** The first word may be a directive with such a name: `token mint`. */
function isSecretField(word: string, index: number): boolean {
  const name = FIELD.exec(word)?.[1];
  return name !== undefined && (index > 0 || !/^[a-z_]+$/.test(name)) && isSecretName(name);
}

function toRange(match: RegExpExecArray): TextRange & { readonly text: string } {
  return { text: match[0], start: match.index, end: match.index + match[0].length };
}
