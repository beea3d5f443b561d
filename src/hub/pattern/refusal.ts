import { HubgateError } from '../../kernel/error.ts';

/** The error of a pattern that is malformed, or that linear time cannot hold. Code `invalid-pattern`. */
export function refusal(why: string, cause?: unknown): HubgateError {
  return new HubgateError('invalid-pattern', `invalid URL Pattern: ${why}`, { cause });
}
