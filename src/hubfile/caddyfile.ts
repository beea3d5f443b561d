// A Caddyfile is adapted in place: the reader of Hubfiles reports what it does not support, the line becomes
// a comment, and the text is read again until nothing is reported. So the adapter has no grammar of its own,
// and every hint is from the reader. `error 503` replaces a line that restricted access.

import {
  ConfigError,
  EMPTY_KEY,
  type Place,
  placeText,
  type Problem,
  UNSET_VARIABLE,
} from '../config/problem.ts';
import { resolve } from 'node:path';
import { type ImportIo, type PlacedText, withImports } from './caddyfile-imports.ts';
import { differencesIn } from './caddy-differences.ts';
import type { DirectiveTable } from './directive-table.ts';
import {
  commentsOf,
  editText,
  marksOf,
  type Translation,
  translations,
} from './caddyfile-words.ts';
import { addToList } from '../kernel/collections.ts';
import { formatHubfile } from './format.ts';
import { locate, placeOf, type Span } from './place.ts';
import { makeSource, type MappedText, type Source } from './source.ts';
import { lineAt, nameOf, type WrittenLine, writtenLines } from './written-lines.ts';

/** The Hubfile for a Caddyfile. */
export interface AdaptedCaddyfile {
  /** A Hubfile in its canonical layout, with the comments of the Caddyfile. */
  readonly text: string;
  /** What could not be converted; a comment in the Hubfile marks each. */
  readonly leftOut: readonly Problem[];
  /** Lines that were converted to something slightly different, and what this machine still lacks. */
  readonly notes: readonly Problem[];
}

/** Reads a text as a Hubfile and returns its problems, including warnings. */
export type ProblemsOf = (text: string) => readonly Problem[];

/** More rounds are never needed: leaving out a line may affect the lines that depend on it. */
const MAX_ROUNDS = 100;

/** Codes of problems that concern this machine; the target machine may not have them. */
const OF_THE_MACHINE: ReadonlySet<string> = new Set([
  'bad-dns-provider',
  'certificate-unusable',
  'history-left-behind',
  'invalid-jwks',
  'invalid-key',
  'local-certificate',
  'missing-key',
  'not-utf8',
  'pem-with-hmac',
  'pem-without-algorithm',
  'private-key',
  'storage-unusable',
  'unreadable-file',
  'unusable-log-file',
]);
/** Reported if a key comes from a variable that this machine has not set. */
const OF_EMPTY_KEYS: ReadonlySet<string> = new Set(['no-publisher-key', 'no-subscriber-key']);
/** The structure of the text is broken, so it is unclear what belongs together. */
const BROKEN: ReadonlySet<string> = new Set([
  'bad-character',
  'bad-heredoc',
  'import-cycle',
  'misplaced-brace',
  'too-deep',
  'too-large',
  'unclosed-block',
  'unclosed-heredoc',
  'unclosed-quote',
  'unexpected-brace',
]);
/** Reported for the Caddyfile, but no longer true for the Hubfile. A variable may be unset on purpose. */
const OF_NO_CONCERN: ReadonlySet<string> = new Set(['old-name', UNSET_VARIABLE]);
/** The line stays, but a part of it has lost its meaning. */
const UNKNOWN_PLACEHOLDER = 'unknown-placeholder';
const WITHOUT_MEANING: ReadonlySet<string> = new Set(['not-carried-over', UNKNOWN_PLACEHOLDER]);
/** Directives that would apply to more requests, or accept more of them, if a part were left out. */
const WHOLE: ReadonlySet<string> = new Set([
  'basic_auth',
  'basicauth',
  'client_auth',
  'forward_auth',
  'match',
  'zone',
]);

/**
 * Converts a Caddyfile to a Hubfile. The languages are almost the same: different words are replaced, lines
 * that hubgate does not know become comments, everything else stays as it is written. A block that has lost a
 * line that restricted access responds with `503` until the operator replaces it. Imports are inserted and
 * treated in the same way.
 *
 * @param text UTF-8, lines ended by LF
 * @throws {ConfigError} `invalid-config` if it is not a valid Caddyfile, or if a variable is missing
 * @throws {HubgateError} `too-large` with its imports
 */
export function adaptCaddyfile(
  text: string,
  file: string,
  io: ImportIo,
  table: DirectiveTable,
  problemsOf: ProblemsOf,
): AdaptedCaddyfile {
  const written = problemsOf(text);
  if (written.some(({ code }) => BROKEN.has(code))) throw new ConfigError(written);
  const whole = withImports(text, file, resolve(file), io, table);
  const placed = (problem: Problem): Problem => placedInFile(problem, file, whole);
  try {
    const { leftOut, notes, ...adapted } = adaptWhole(whole.text, file, table, problemsOf);
    return { ...adapted, leftOut: leftOut.map(placed), notes: notes.map(placed) };
  } catch (thrown) {
    if (!(thrown instanceof ConfigError)) throw thrown;
    throw new ConfigError(thrown.problems.map(placed));
  }
}

/** Whether a file is called as Caddyfiles are. */
export function isCaddyfile(file: string): boolean {
  return /(?:^|[/\\])Caddyfile[^/\\]*$|\.caddy(?:file)?$/i.test(file);
}

/**
 * The documented differences from Caddy that a valid Caddyfile with its imports touches.
 *
 * @throws {HubgateError} `too-large` with its imports
 */
export function differencesFromCaddy(
  text: string,
  file: string,
  io: ImportIo,
  table: DirectiveTable,
): readonly Problem[] {
  const whole = withImports(text, file, resolve(file), io, table);
  const source = makeSource({ file, path: file }, whole.text, {});
  const found = differencesIn(writtenLines(whole.text, table), source);
  return found.map((problem) => placedInFile(problem, file, whole));
}

/** A problem of a text that was made from others, with its place in the original file. */
function placedInFile(problem: Problem, file: string, made: PlacedText): Problem {
  const { place } = problem;
  const message = problem.message.replaceAll(OTHER_PLACE, (found, other: string, line, column) => {
    if (other !== file) return found;
    const at = offsetOf(made.text, { line: Number(line), column: Number(column) });
    return placeText(made.placeAt(at));
  });
  if (place === undefined) return { ...problem, message };
  const { importedFrom = [], ...innermost } = place;
  const chain = [innermost, ...importedFrom].flatMap((spot) => {
    if (spot.file !== file) return [spot];
    const { importedFrom: outer = [], ...at } = made.placeAt(offsetOf(made.text, spot));
    return [at, ...outer];
  });
  const [spot = innermost, ...outer] = chain;
  return { ...problem, message, place: outer.length > 0 ? { ...spot, importedFrom: outer } : spot };
}

function adaptWhole(
  text: string,
  file: string,
  table: DirectiveTable,
  problemsOf: ProblemsOf,
): AdaptedCaddyfile {
  const source = makeSource({ file, path: file }, text, {});
  const asWritten = problemsOf(text);
  if (asWritten.some(({ code }) => BROKEN.has(code))) throw new ConfigError(asWritten);
  const lines = writtenLines(text, table);
  const translated = translations(lines, table);
  const leftOut = new Map<WrittenLine, Problem[]>();
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const edited = editText(text, [...translated, ...commentsOf(lines, leftOut, text, table)]);
    const problems = problemsOf(edited.text).map((each) => placedIn(source, each, edited));
    const errors = toLeaveOut(problems);
    if (errors.length === 0) {
      const notes = asWritten.filter(({ code }) => code === 'reference-hub');
      const lost = translated.flatMap((each) => lostBy(each, source));
      const gone = [...leftOut.keys()];
      const isGone = (problem: Problem): boolean => {
        const at = offsetIn(source, problem);
        return at !== null && gone.some(({ start, end }) => start <= at && at < end);
      };
      const differences = differencesIn(lines, source).filter((each) => !isGone(each));
      const rest = [...lost, ...notes, ...problems, ...differences];
      const unknown = problems.filter(({ code }) => code === UNKNOWN_PLACEHOLDER);
      const marks = marksOf(byLine(unknown, lines, source));
      const comments = commentsOf(lines, leftOut, text, table);
      const marked = editText(text, [...marks, ...translated, ...comments]);
      return result(formatHubfile(marked.text, file), leftOut, rest);
    }
    const before = leftOut.size;
    for (const problem of errors) {
      const at = offsetIn(source, problem);
      const line = at === null ? undefined : removable(lineAt(lines, at));
      if (line === undefined || hasUnset(line, problems, source)) throw hindered(problems);
      leftOut.set(line, [...(leftOut.get(line) ?? []), problem]);
    }
    if (leftOut.size === before) throw hindered(problems);
  }
  throw hindered(asWritten);
}

function byLine(
  problems: readonly Problem[],
  lines: readonly WrittenLine[],
  source: Source,
): ReadonlyMap<WrittenLine, readonly Problem[]> {
  const found = new Map<WrittenLine, Problem[]>();
  for (const problem of problems) {
    const at = offsetIn(source, problem);
    const line = at === null ? undefined : lineAt(lines, at);
    if (line !== undefined) addToList(found, line, problem);
  }
  return found;
}

function lostBy({ start, end, loses }: Translation, source: Source): readonly Problem[] {
  if (loses === undefined) return [];
  const span = { source, start, end: Math.min(end, wordAt(source.raw, start).end), via: null };
  return [locate({ severity: 'error', code: 'not-carried-over', ...loses }, span)];
}

/** The problems for which lines are left out, wherever they are read. */
export function toLeaveOut(problems: readonly Problem[]): readonly Problem[] {
  const mayLackKeys = problems.some(({ code }) => code === EMPTY_KEY);
  return problems.filter(
    ({ severity, code }) =>
      (severity === 'error' || code === 'no-effect') &&
      !OF_THE_MACHINE.has(code) &&
      !(mayLackKeys && OF_EMPTY_KEYS.has(code)),
  );
}

function result(
  text: string,
  leftOut: ReadonlyMap<WrittenLine, readonly Problem[]>,
  rest: readonly Problem[],
): AdaptedCaddyfile {
  const reasons = [...leftOut.values()].flat();
  const lost = rest.filter(({ code }) => WITHOUT_MEANING.has(code));
  const notes = rest.filter((each) => !lost.includes(each) && !OF_NO_CONCERN.has(each.code));
  return {
    text,
    leftOut: [...reasons.filter((each) => !isNeedless(each)), ...lost].sort(byPlace),
    notes: [...reasons.filter(isNeedless), ...notes].map(asWarning).sort(byPlace),
  };
}

/** Whether hubgate does the same without the line. */
function isNeedless({ code, hint = '' }: Problem): boolean {
  return code === 'no-effect' || hint.startsWith('leave it out');
}

function asWarning(problem: Problem): Problem {
  return { ...problem, severity: 'warning' };
}

function byPlace({ place: a }: Problem, { place: b }: Problem): number {
  return (a?.line ?? 0) - (b?.line ?? 0) || (a?.column ?? 0) - (b?.column ?? 0);
}

/** The error with all problems, if leaving out lines cannot fix them. */
function hindered(problems: readonly Problem[]): ConfigError {
  const unset = problems.filter(({ code }) => code === UNSET_VARIABLE);
  const errors = toLeaveOut(problems).filter(({ severity }) => severity === 'error');
  return new ConfigError([...unset, ...errors]);
}

/**
 * The line that must be left out to remove a problem in it. Some directives can only be left out as a whole.
 */
function removable(line: WrittenLine | undefined): WrittenLine | undefined {
  let found = line;
  for (let outer = line; outer !== undefined && outer.outer !== null; outer = outer.outer) {
    if (nameOf(outer).startsWith('@') || WHOLE.has(nameOf(outer))) found = outer;
  }
  return found;
}

/** Whether the line, or a block around it, depends on a variable that is not set. */
function hasUnset(line: WrittenLine, problems: readonly Problem[], source: Source): boolean {
  const unset = problems.flatMap((problem) => {
    const at = problem.code === UNSET_VARIABLE ? offsetIn(source, problem) : null;
    return at === null ? [] : [at];
  });
  for (let each: WrittenLine | null = line; each !== null; each = each.outer) {
    const { start, end, blockStart } = each;
    if (unset.some((at) => start <= at && at < (blockStart ?? end))) return true;
  }
  return false;
}

/** A problem of the changed text, with its place in the Caddyfile. */
function placedIn(source: Source, problem: Problem, edited: MappedText): Problem {
  const spot = (at: number): Span => ({ source, start: at, end: at, via: null });
  const placed = placedInFile(problem, source.file, {
    text: edited.text,
    placeAt: (offset) => placeOf(spot(edited.originOf(offset)?.at ?? offset)),
  });
  const at = offsetIn(source, placed);
  if (at === null || problem.place?.file !== source.file) return placed;
  const { end } = wordAt(source.raw, at);
  // The original line, not the changed one.
  return { ...placed, excerpt: locate(problem, { ...spot(at), end }).excerpt ?? '' };
}

const OTHER_PLACE = /(?<=; the (?:first|other) is at )(\S+):(\d+):(\d+)/g;

/** The offset of a problem in the Caddyfile itself, or of the import that led to it. */
function offsetIn({ file, raw }: Source, { place }: Problem): number | null {
  const here = [place, ...(place?.importedFrom ?? [])].find((each) => each?.file === file);
  return here === undefined ? null : offsetOf(raw, here);
}

function offsetOf(text: string, { line, column }: Omit<Place, 'importedFrom' | 'file'>): number {
  let start = 0;
  for (let passed = 1; passed < line; passed++) start = text.indexOf('\n', start) + 1;
  const before = Array.from(text.slice(start, start + 2 * column)).slice(0, column - 1);
  return start + before.join('').length;
}

function wordAt(text: string, at: number): { readonly end: number } {
  const length = text.slice(at).search(/\s|$/);
  return { end: at + Math.max(1, length) };
}
