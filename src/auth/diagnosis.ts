import { HubgateError } from '../kernel/error.ts';

/** Why a token was refused, for the operator only. Holds neither the token nor a key. */
export interface Diagnosis {
  /** The header member or claim, `signature`, or `shape`. */
  readonly check: string;
  readonly expected: string;
  readonly found: string;
  /** What to change, and where. */
  readonly fix: string;
}

/** A check that was made. */
export interface Check extends Diagnosis {
  readonly passed: boolean;
}

/** A token that is not accepted. Code `invalid-token`; its message tells a client nothing. */
export class InvalidTokenError extends HubgateError {
  readonly diagnosis: Diagnosis;

  constructor(diagnosis: Diagnosis, options?: { cause?: unknown }) {
    super('invalid-token', 'the access token is not valid', options);
    this.name = 'InvalidTokenError';
    this.diagnosis = diagnosis;
  }
}

/** Longest value of a token that a log line repeats, in characters. */
const MAX_SHOWN = 200;

/** A value of a token as a log shows it. */
export function quote(value: unknown): string {
  if (value === undefined) return 'no such member';
  const text = JSON.stringify(value);
  return text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}…`;
}

/** @throws InvalidTokenError for a check that failed */
export function assertCheck(check: Check): void {
  if (check.passed) return;
  const { passed: _, ...diagnosis } = check;
  throw new InvalidTokenError(diagnosis);
}

/** A reading as a check: what it gave, or null with the diagnosis. */
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
