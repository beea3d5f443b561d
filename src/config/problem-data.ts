import type { Problem } from './problem.ts';

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
