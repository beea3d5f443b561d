import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';
import { orNull } from '../kernel/parse.ts';

/** A position in a configuration text. Lines and columns count from 1; a column is one character. */
export interface Place {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** The imports that lead to the file, innermost `import` first. */
  readonly importedFrom?: readonly Omit<Place, 'importedFrom'>[];
}

/** An error or a warning about a configuration. */
export interface Problem {
  /** A configuration with an error is refused; one with a warning is loaded. */
  readonly severity: 'error' | 'warning';
  /** A stable identifier in kebab case, for example `unknown-directive`. */
  readonly code: string;
  /** What is wrong, and what was expected. Never contains a secret. */
  readonly message: string;
  readonly place?: Place;
  /** The line with secrets hidden, and a caret below it. */
  readonly excerpt?: string;
  /** What to do about it. */
  readonly hint?: string;
}

/** A problem whose place is not known yet. */
export type UnplacedProblem = Omit<Problem, 'place' | 'excerpt'>;

export function error(code: string, message: string, hint?: string): UnplacedProblem {
  return { severity: 'error', code, message, ...(hint === undefined ? {} : { hint }) };
}

export function warning(code: string, message: string, hint?: string): UnplacedProblem {
  return { ...error(code, message, hint), severity: 'warning' };
}

/** Most errors, and most warnings, that are kept. Neither may take the place of the other. */
const MAX_PROBLEMS = 200;

/** Counts what is found. Placing what is beyond the limit would take time and help nobody. */
export class ProblemCounts {
  error = 0;
  warning = 0;

  /** Counts one more. Returns whether it is kept. */
  keeps({ severity }: UnplacedProblem): boolean {
    this[severity] += 1;
    return this[severity] <= MAX_PROBLEMS;
  }
}

/** The location of a problem, more precise than the object. */
export interface SourceLocation {
  /** The field of the object that the problem is about, for example `resourceIdentifier`. */
  readonly field?: string;
  /** Another object of the `Config` that it conflicts with; its place is shown too. */
  readonly other?: object;
}

/**
 * Reports a problem with the part of the configuration that it is about. `about` is an object or a list of
 * the `Config`; the reader of the text knows where each of them was written.
 */
export type Report = (
  about: object | null,
  problem: UnplacedProblem,
  where?: SourceLocation,
) => void;

/** Reports the HubgateError that a check throws; returns whether it has thrown none. */
export function tryCheck(
  check: () => unknown,
  about: object,
  report: Report,
  where: SourceLocation = {},
  hint?: string,
): boolean {
  try {
    check();
    return true;
  } catch (thrown) {
    if (!(thrown instanceof HubgateError)) throw thrown;
    report(about, error(thrown.code, thrown.message, hint), where);
    return false;
  }
}

/** A configuration that cannot be used. Contains all of its problems, in the order of the text. */
export class ConfigError extends HubgateError {
  readonly problems: readonly Problem[];

  /** @throws HubgateError `invalid-argument` if a program passes anything but problems */
  constructor(problems: readonly Problem[]) {
    if (!Array.isArray(problems) || problems.some((each) => typeof each?.message !== 'string')) {
      throw new HubgateError('invalid-argument', 'A ConfigError is made from a list of problems');
    }
    const ordered = inOrder(problems);
    super('invalid-config', ordered.map((each) => describeProblem(each)).join('\n'));
    this.name = 'ConfigError';
    this.problems = ordered;
  }
}

/** Whether at least one problem makes the configuration unusable. */
export function hasError(problems: readonly Problem[]): boolean {
  return problems.some(({ severity }) => severity === 'error');
}

/** Code of the warning about a variable that is not set; only reported together with an error. */
export const UNSET_VARIABLE = 'unset-variable';
/** Code of the warning about a key whose value is empty. */
export const EMPTY_KEY = 'empty-key';

/** Code of a note that repeats a documented difference from Caddy. Nothing is wrong with the text. */
export const DIFFERS_FROM_CADDY = 'differs-from-caddy';

/** The warnings about a usable configuration, in the order of the text. */
export function warningsOf(problems: readonly Problem[]): readonly Problem[] {
  return inOrder(problems).filter(({ code }) => code !== UNSET_VARIABLE);
}

/**
 * Sorts problems: first those that may cause others, then the rest in the order of their files and places.
 */
function inOrder(problems: readonly Problem[]): readonly Problem[] {
  const files = new Map<string, number>();
  for (const { place } of problems) {
    if (place !== undefined && !files.has(place.file)) files.set(place.file, files.size);
  }
  const rank = ({ place, code }: Problem): readonly [number, number, number] =>
    code === UNSET_VARIABLE || code === EMPTY_KEY
      ? [-2, place?.line ?? 0, place?.column ?? 0]
      : place === undefined
        ? [-1, 0, 0]
        : [files.get(place.file) ?? 0, place.line, place.column];
  return [...problems].sort((a, b) => {
    const [left, right] = [rank(a), rank(b)];
    return left[0] - right[0] || left[1] - right[1] || left[2] - right[2];
  });
}

/** `Hubfile:12:3` */
export function placeText({ file, line, column }: Omit<Place, 'importedFrom'>): string {
  return `${file}:${line}:${column}`;
}

/** A problem in the format for the operator: `Hubfile:12:3: error: …`, the line, the caret, the hint. */
export function describeProblem(
  problem: Problem,
  severity: string = problem.code === DIFFERS_FROM_CADDY ? 'note' : problem.severity,
): string {
  const { place } = problem;
  const lines = [`${severity}: ${problem.message}`];
  if (place !== undefined) lines[0] = `${placeText(place)}: ${lines[0]}`;
  if (problem.excerpt !== undefined) lines.push(problem.excerpt);
  for (const step of place?.importedFrom ?? []) lines.push(`  imported at ${placeText(step)}`);
  if (problem.hint !== undefined) lines.push(`  ${problem.hint}`);
  return lines.join('\n');
}

/** A problem in the format for programs: `validate --json`, the admin API. */
export interface ProblemData {
  readonly severity: 'error' | 'warning';
  readonly code: string;
  readonly message: string;
  readonly file: string | undefined;
  readonly line: number | undefined;
  readonly column: number | undefined;
  readonly hint: string | undefined;
}

export function problemData({ severity, code, message, place, hint }: Problem): ProblemData {
  const { file, line, column } = place ?? {};
  return { severity, code, message, file, line, column, hint };
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'the file does not exist',
  ENOTDIR: 'the file does not exist',
  EISDIR: 'it is a directory',
  EACCES: 'permission denied',
  ELOOP: 'its symbolic links form a loop',
};

/** The reason why a file could not be read, without the absolute path in the system's message. */
export function whyUnreadable(thrown: unknown): string {
  const code = codeOf(thrown);
  if (code === undefined) return messageOf(thrown);
  return REASONS[code] ?? code;
}

/**
 * The reason why a path of the storage cannot be used. If it belongs to another user, a command that ran as that user may
 * have created it.
 */
export function whyUnusable(thrown: unknown): string {
  const own = process.geteuid?.();
  const path: unknown = thrown instanceof Error ? Reflect.get(thrown, 'path') : undefined;
  if (codeOf(thrown) !== 'EACCES' || own === undefined || typeof path !== 'string') {
    return messageOf(thrown);
  }
  // Nobody sees the owner of what is in a directory that they may not enter.
  let known = path;
  while (known !== dirname(known) && ownerOf(known) === null) known = dirname(known);
  const owner = ownerOf(known);
  if (owner === null || owner === own) return messageOf(thrown);
  const [its, ours] = [owner, own].map((id) => (id === 0 ? 'root' : `user ${id}`));
  return `${messageOf(thrown)}; ${known} belongs to ${its}, and this process runs as ${ours}: give it to the user of the gateway with chown, and run commands as that user`;
}

function ownerOf(path: string): number | null {
  return orNull(() => statSync(path).uid);
}

/** The problem of a configuration whose own file cannot be read. */
export function unreadableConfig(file: string, thrown: unknown): UnplacedProblem {
  const hint =
    codeOf(thrown) === 'ENOENT'
      ? '--config names another file, and hubgate init writes a first Hubfile'
      : undefined;
  return error('unreadable-file', `cannot read ${file}: ${whyUnreadable(thrown)}`, hint);
}

const MIN_BEGINNING = 4;

/** The known name closest to the written one, if it is close enough to be the intended one. */
export function nearestName(written: string, known: readonly string[]): string | undefined {
  const text = written.toLowerCase().replaceAll('-', '_').slice(0, 64);
  const reach = Math.floor(text.length / 3);
  let best: { name: string; distance: number } | undefined;
  for (const name of known) {
    const distance = editDistance(text, name.toLowerCase().replaceAll('-', '_'));
    if (distance <= reach && (best === undefined || distance < best.distance)) {
      best = { name, distance };
    }
  }
  return best?.name ?? nameWithSameBeginning(text, known);
}

/** The hint that names the closest known name; undefined if none is close. */
export function didYouMean(written: string, known: readonly string[]): string | undefined {
  const near = nearestName(written, known);
  return near === undefined ? undefined : `did you mean \`${near}\`?`;
}

/** For example `redirect` for `redir`, or `proto` for `protocol`. */
function nameWithSameBeginning(text: string, known: readonly string[]): string | undefined {
  for (const name of known) {
    const [short, long] = name.length < text.length ? [name, text] : [text, name];
    if (short.length >= MIN_BEGINNING && long.startsWith(short)) return name;
  }
  return undefined;
}

/** The number of insertions, deletions, replacements and swaps of neighbours between two texts. */
function editDistance(from: string, to: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = (last[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      let cost = Math.min(replaced, (last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1);
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        cost = Math.min(cost, (beforeLast[j - 2] ?? 0) + 1);
      }
      row.push(cost);
    }
    beforeLast = last;
    last = row;
  }
  return last[to.length] ?? 0;
}
