import { HubgateError } from '../kernel/error.ts';

/** The reason why a token was refused, for the operator only. Contains neither the token nor a key. */
export interface Diagnosis {
  /** The header member or claim, `signature`, or `shape`. */
  readonly check: string;
  readonly expected: string;
  readonly found: string;
  /** What to change, and where. */
  readonly fix: string;
}

/** A check and its result. */
export interface Check extends Diagnosis {
  readonly passed: boolean;
}

/** A token that is not accepted. Code `invalid-token`; its message reveals nothing to a client. */
export class InvalidTokenError extends HubgateError {
  readonly diagnosis: Diagnosis;

  constructor(diagnosis: Diagnosis, options?: { cause?: unknown }) {
    super('invalid-token', 'the access token is not valid', options);
    this.name = 'InvalidTokenError';
    this.diagnosis = diagnosis;
  }
}

/** Longest value of a request in a log line, in characters. */
export const MAX_SHOWN = 200;

/** A value of a request in the format of log lines. */
export function quote(value: unknown): string {
  if (value === undefined) return 'no such member';
  const text = JSON.stringify(value);
  return text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}…`;
}

/** @throws InvalidTokenError if the check has failed */
export function assertCheck(check: Check): void {
  if (check.passed) return;
  const { passed: _, ...diagnosis } = check;
  throw new InvalidTokenError(diagnosis);
}

/** Runs a reading as a check. Returns its result, or null with the diagnosis. */
export function attempt<T>(
  check: string,
  expected: string,
  run: () => T,
): { readonly value: T | null; readonly check: Check } {
  try {
    const value = run();
    return { value, check: { check, passed: true, expected, found: expected, fix: '' } };
  } catch (error) {
    if (!(error instanceof InvalidTokenError)) throw error;
    return { value: null, check: { ...error.diagnosis, passed: false } };
  }
}
