import { codeOf, HubgateError, messageOf } from '../kernel/error.ts';

/** A position in a configuration text. Lines and columns count from 1; a column is one character. */
export interface Place {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** How the file was reached, innermost `import` first. */
  readonly importedFrom?: readonly Omit<Place, 'importedFrom'>[];
}

/** Something wrong, or dubious, in a configuration. */
export interface Problem {
  /** An error refuses the configuration; a warning loads it. */
  readonly severity: 'error' | 'warning';
  /** Stable, kebab-case: `unknown-directive`. */
  readonly code: string;
  /** What is wrong, and what was expected. Never a secret. */
  readonly message: string;
  readonly place?: Place;
  /** The line with secrets hidden, and under it a caret. */
  readonly excerpt?: string;
  /** What to do about it. */
  readonly hint?: string;
}

/** A problem before its place is known. */
export type UnplacedProblem = Omit<Problem, 'place' | 'excerpt'>;

/** Where, beyond the object itself, a problem lies. */
export interface SourceLocation {
  /** The field of the object, if the problem is about one: `resourceIdentifier`. */
  readonly field?: string;
  /** Another object of the `Config` that it clashes with; its place is named too. */
  readonly other?: object;
}

/**
 * Takes a problem with the part of the configuration it is about. `about` is an object or a list
 * of the `Config`; the reader of the text knows where each of them was written.
 */
export type Report = (
  about: object | null,
  problem: UnplacedProblem,
  where?: SourceLocation,
) => void;

/** A configuration that cannot be used. Carries all of its problems, in the order of the text. */
export class ConfigError extends HubgateError {
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[]) {
    const ordered = inOrder(problems);
    super('invalid-config', ordered.map((each) => describeProblem(each)).join('\n'));
    this.name = 'ConfigError';
    this.problems = ordered;
  }
}

/** Whether one of them makes the configuration unusable. */
export function hasError(problems: readonly Problem[]): boolean {
  return problems.some(({ severity }) => severity === 'error');
}

/** Code of the warning about a variable that is not set; told only where there is an error. */
export const UNSET_VARIABLE = 'unset-variable';
/** Code of the warning about a key that comes out empty. */
export const EMPTY_KEY = 'empty-key';

/** What is to be told of a configuration that can be used. */
export function warningsOf(problems: readonly Problem[]): readonly Problem[] {
  return problems.filter(({ code }) => code !== UNSET_VARIABLE);
}

/**
 * What other problems may follow from first; else in the order of the files that
 * they are in, and of their places there.
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

/** A problem as the operator reads it: `Hubfile:12:3: error: …`, the line, the caret, the hint. */
export function describeProblem(problem: Problem, severity: string = problem.severity): string {
  const { place } = problem;
  const lines = [`${severity}: ${problem.message}`];
  if (place !== undefined) lines[0] = `${placeText(place)}: ${lines[0]}`;
  if (problem.excerpt !== undefined) lines.push(problem.excerpt);
  for (const step of place?.importedFrom ?? []) {
    lines.push(`  imported at ${placeText(step)}`);
  }
  if (problem.hint !== undefined) lines.push(`  ${problem.hint}`);
  return lines.join('\n');
}

/** A problem as programs read it: `validate --json`, the admin API. */
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
  EACCES: 'the user of the gateway may not read it',
};

/** Why a file could not be read, without the absolute path that the system's message repeats. */
export function whyUnreadable(thrown: unknown): string {
  const code = codeOf(thrown);
  if (code === undefined) return messageOf(thrown);
  return REASONS[code] ?? code;
}
