import { bindForms, parseBindAddress } from '../config/bind-address.ts';
import type { BindAddress } from '../config/config.ts';
import { didYouMean } from '../config/problem.ts';
import { isStatusTemplate, type StatusValue } from '../config/shape-values.ts';
import { parseDuration, parseSize } from '../config/units.ts';
import {
  isAddressRange,
  isHeaderName,
  isHeaderValue,
  isStatusPattern,
  isTriedFile,
  misplacedStatus,
  PRIVATE_RANGES,
  TRY_POLICIES,
  type TryPolicy,
} from '../config/well-formed.ts';
import type { Cursor, OptionTable } from './cursor.ts';
import { type Members, type OptionInput, type Shape, underscored } from '../config/shape.ts';
import { Secret } from '../kernel/secret.ts';
import type { Word } from './parser.ts';
import type { HeaderOperation } from '../config/routes.ts';

const RESOLVED_LATER = /(?<!\\)\{(?:env|file)\./;
const MAX_COUNT = 2 ** 31 - 1;

/** A table of options that do not depend on each other. */
export type OptionReaders<T> = Readonly<
  Record<string, ((cursor: Cursor) => Partial<T>) | undefined>
>;

/**
 * The options of members, such as `heartbeat` for `heartbeatMs`. An option whose shape does not say how its value
 * is written is undefined: the caller adds it behind these, and it keeps its place among them.
 *
 * @param words the options with other names, by their members; null: the member is no option
 */
export function optionsOf<T extends object>(
  members: Members<T>,
  words: Partial<Record<NoInfer<keyof T>, string | null>> = {},
): OptionReaders<T> {
  const named = new Map(Object.entries<string | null | undefined>(words));
  const options = Object.entries<Shape<unknown>>(members).flatMap(([field, { input }]) => {
    if (named.get(field) === null) return [];
    const word = named.get(field) ?? underscored(field.replace(/Ms$/, ''));
    const read = input && ((cursor: Cursor) => ({ [field]: valueOf(cursor, input) }));
    return [[word, read] as const];
  });
  // The input of each shape describes values that the shape accepts.
  return Object.fromEntries(options) as OptionReaders<T>;
}

/**
 * Options that change a part of the settings.
 *
 * @param start the part before its first option
 * @param prefix the beginning of the name of each option
 */
export function optionsOfPart<Field extends string, Part extends object>(
  field: Field,
  start: Part,
  options: OptionReaders<Part>,
  prefix = '',
): OptionTable<{ readonly [Name in Field]: Part | null }> {
  return Object.fromEntries(
    Object.entries(options).map(([word, read]) => [
      `${prefix}${word}`,
      read &&
        ((cursor: Cursor, sofar: { readonly [Name in Field]: Part | null }) =>
          // The only member has the name of the part.
          ({ [field]: { ...(sofar[field] ?? start), ...read(cursor) } }) as Record<Field, Part>),
    ]),
  );
}

function valueOf(cursor: Cursor, input: OptionInput): unknown {
  switch (input.kind) {
    case 'flag':
      return flag();
    case 'count':
      return count(cursor, input);
    case 'duration':
      return within(cursor, duration, (ms) => ms >= input.min, 'a duration above 0');
    case 'size':
      return within(cursor, size, (bytes) => bytes >= input.min, 'a size above 0');
    case 'choice':
      return oneOf(cursor, input.choices);
    case 'secret':
      return new Secret(name(cursor, input.expected));
    case 'names':
      return list(cursor, input.expected);
    case 'text':
      return matching(cursor, input.expected, input.isFit);
  }
}

/** A duration in milliseconds. */
export function duration(cursor: Cursor): number {
  const word = cursor.argument('a duration such as 10s');
  return (
    parseDuration(word.text) ?? badValue(cursor, word, 'a duration such as 500ms, 10s, 1h30m or 7d')
  );
}

/** The addresses where something listens: interfaces, Unix sockets, or inherited sockets. */
export function bindAddresses(cursor: Cursor): readonly BindAddress[] {
  return cursor
    .several('an address of this machine')
    .map((word) => parseBindAddress(word.text) ?? badValue(cursor, word, bindForms(word.text)));
}

/** A size in bytes. */
export function size(cursor: Cursor): number {
  const word = cursor.argument('a size such as 1MiB');
  return parseSize(word.text) ?? badValue(cursor, word, 'a size such as 64KB, 1MiB or 4096');
}

/** A whole number within bounds. */
export function count(cursor: Cursor, bounds: { min?: number; max?: number } = {}): number {
  const { min = 0, max = MAX_COUNT } = bounds;
  const expected =
    max === MAX_COUNT ? `a whole number from ${min}` : `a number from ${min} to ${max}`;
  const word = cursor.argument(expected);
  const number = /^-?\d{1,15}$/.test(word.text) ? Number(word.text) : Number.NaN;
  return number >= min && number <= max ? number : badValue(cursor, word, expected);
}

/** One of a few known words. */
export function oneOf<const Choice extends string>(
  cursor: Cursor,
  choices: readonly Choice[],
): Choice {
  return choiceOf(cursor, cursor.argument(anyOf(choices)), choices);
}

export function choiceOf<const Choice extends string>(
  cursor: Cursor,
  word: Word,
  choices: readonly Choice[],
): Choice {
  const found = choices.find((choice) => choice === word.text);
  if (found !== undefined) return found;
  const message = `${cursor.name} expects ${anyOf(choices)}, not ${cursor.quote(word)}`;
  return cursor.fail(word.span, 'bad-value', message, didYouMean(word.text, choices));
}

function anyOf(choices: readonly string[]): string {
  return choices.length === 1 ? choices.join() : `one of ${choices.join(', ')}`;
}

/** A flag has no argument. */
export function flag(): true {
  return true;
}

export function text(cursor: Cursor, expected: string): string {
  return cursor.argument(expected).text;
}

/** A text that must not be empty. */
export function name(cursor: Cursor, expected: string): string {
  return matching(cursor, expected, (text) => text !== '');
}

/** A text of a certain form. */
export function matching(
  cursor: Cursor,
  asked: string,
  isValid: (text: string) => boolean,
  expected = asked,
): string {
  return fitting(cursor, cursor.argument(asked), isValid, expected);
}

/** The text of a word if it has a certain form. */
export function fitting(
  cursor: Cursor,
  word: Word,
  isValid: (text: string) => boolean,
  expected: string,
): string {
  return isValid(word.text) ? word.text : badValue(cursor, word, expected);
}

/** A duration or a size within limits of its own. */
export function within(
  cursor: Cursor,
  read: (cursor: Cursor) => number,
  isWithin: (value: number) => boolean,
  expected: string,
): number {
  const word = cursor.peek();
  const value = read(cursor);
  return word === undefined || isWithin(value) ? value : badValue(cursor, word, expected);
}

/**
 * A list of texts that are not empty: a variable that is not set becomes an empty word. The place of the list is recorded,
 * so that a check can point at it.
 */
export function list(cursor: Cursor, expected: string): readonly string[] {
  const empty = cursor.line.words.find((word, index) => index > 0 && word.text === '');
  return empty === undefined ? texts(cursor, expected) : badValue(cursor, empty, expected);
}

/** As {@link list}, but the texts may be empty. */
export function texts(cursor: Cursor, expected: string): readonly string[] {
  const words = cursor.several(expected).map((word) => word.text);
  return cursor.origins.of(cursor.span, words);
}

export function statusCode(cursor: Cursor, word: Word, bounds = { min: 200, max: 599 }): number {
  const code = /^\d{3}$/.test(word.text) ? Number(word.text) : Number.NaN;
  if (code >= bounds.min && code <= bounds.max) return code;
  return badValue(cursor, word, `a status from ${bounds.min} to ${bounds.max}`);
}

/** A status, or a text with a placeholder that becomes one for each request. */
export function statusValue(
  cursor: Cursor,
  word: Word,
  bounds = { min: 200, max: 599 },
): StatusValue {
  return isStatusTemplate(word.text) ? word.text : statusCode(cursor, word, bounds);
}

/** Statuses such as `404` and classes such as `5xx`. */
export function statusClasses(cursor: Cursor): readonly string[] {
  const expected = 'a status such as 404 or 5xx';
  return cursor.several(expected).map((word) => fitting(cursor, word, isStatusPattern, expected));
}

/** CIDR ranges; `private_ranges` stands for those of private networks. */
export function ranges(cursor: Cursor): readonly string[] {
  const words = cursor.several('address ranges such as 10.0.0.0/8, or private_ranges');
  return words.flatMap((word) => {
    if (word.text === 'private_ranges') return PRIVATE_RANGES;
    return isAddressRange(word.text)
      ? [word.text]
      : badValue(cursor, word, 'an address range such as 10.0.0.0/8');
  });
}

/** The name of a header field, as written. */
export function headerName(cursor: Cursor, word: Word, written = word.text): string {
  const field = written.endsWith(':') ? written.slice(0, -1) : written;
  return isHeaderName(field) ? field : badValue(cursor, word, 'the name of a header field');
}

/** The value of a field. Each line break is a space, as Caddy sends it. */
export function headerValue(cursor: Cursor, word: Word): string {
  if (word.text.includes('\0')) badValue(cursor, word, 'a value without NUL');
  return /[\r\n]/.test(word.text) ? word.text.replaceAll(/[\r\n]/g, ' ').trim() : word.text;
}

/** A value that must not have line breaks. */
export function singleLine(cursor: Cursor, word: Word): string {
  return fitting(cursor, word, isHeaderValue, 'a value without line breaks');
}

export function badValue(cursor: Cursor, word: Word, expected: string): never {
  const hint = RESOLVED_LATER.test(word.text)
    ? 'hubgate needs this value while it reads the file: write {$VAR} instead of {env.VAR}'
    : undefined;
  const message = `${cursor.name} expects ${expected}, not ${cursor.quote(word)}`;
  return cursor.fail(word.span, 'bad-value', message, hint);
}

/** The files to try, from one or several words. */
export function triedFiles(cursor: Cursor, words: readonly Word[]): readonly string[] {
  const expected = 'a path without *, [ and ], or a status such as =404';
  return words.map((word) => fitting(cursor, word, isTriedFile, expected));
}

export function tryPolicy(cursor: Cursor): TryPolicy {
  // Caddy does not take its last file either if it does not exist.
  const policy = oneOf(cursor, [...TRY_POLICIES, 'first_exist_fallback']);
  return policy === 'first_exist_fallback' ? 'first_exist' : policy;
}

/** Reports a status that has no effect at its position. */
export function checkTried(cursor: Cursor, files: readonly string[], policy: TryPolicy): void {
  const message = misplacedStatus(files, policy);
  if (message !== null) cursor.fail(cursor.span, 'misplaced-status', message);
}

/** The field, value and replacement at a cursor. */
export function headerOperation(cursor: Cursor, of: 'request' | 'response'): HeaderOperation {
  const field = cursor.argument('a header field');
  const value = cursor.optional();
  const replacement = cursor.optional();
  const operation = operationOf(cursor, field, value, replacement);
  if (of === 'request' && operation.kind === 'default') {
    badValue(cursor, field, 'a field without ?, which is for responses');
  }
  const places = new Map(value === undefined ? [] : [['pattern', value.span] as const]);
  cursor.origins.mark(operation, cursor.span, places);
  return operation;
}

function operationOf(
  cursor: Cursor,
  field: Word,
  value: Word | undefined,
  replacement: Word | undefined,
): HeaderOperation {
  const sign = /^[+\-?>]/.exec(field.text)?.[0] ?? '';
  const written = field.text.slice(sign.length);
  if (sign === '-') {
    if (value !== undefined) {
      cursor.fail(value.span, 'unexpected-argument', 'a deleted field must not have a value');
    }
    return { kind: 'delete', name: deletedName(cursor, field, written) };
  }
  const name = headerName(cursor, field, written);
  if (value === undefined) {
    const hint = `to delete the field write -${name.replace(/^-+/, '')}`;
    return cursor.fail(
      field.span,
      'expected-argument',
      `the header field ${name} needs a value`,
      hint,
    );
  }
  if (replacement !== undefined) {
    if (sign === '+' || sign === '?') {
      badValue(cursor, field, 'a field without + or ? when something is replaced');
    }
    const pattern = value.text;
    return { kind: 'replace', name, pattern, replacement: headerValue(cursor, replacement) };
  }
  const kind = sign === '+' ? 'add' : sign === '?' ? 'default' : 'set';
  return { kind, name, value: headerValue(cursor, value) };
}

function deletedName(cursor: Cursor, field: Word, written: string): string {
  if (written !== '*') headerName(cursor, field, written.replace(/^\*|\*$/g, ''));
  return written.endsWith(':') ? written.slice(0, -1) : written;
}
