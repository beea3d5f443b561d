export interface DeadlineInput {
  /** Milliseconds since the epoch, as the other times. */
  readonly now: number;
  /** `exp` of the token; null without one. */
  readonly expiresAtMs: number | null;
  /** 0 for none. */
  readonly writeTimeoutMs: number;
  readonly dispatchTimeoutMs: number;
  /** From 0 up to 1. */
  readonly random: number;
}

/**
 * How long a stream may live, in milliseconds; null for ever. A random point between 80 % and
 * 100 % of the shorter of token lifetime and write timeout, less the time that a last write may
 * take: never after `exp`, and not at the same instant for all who connected together.
 */
export function streamLifetime(input: DeadlineInput): number | null {
  const limits: number[] = [];
  if (input.writeTimeoutMs > 0) limits.push(input.writeTimeoutMs);
  if (input.expiresAtMs !== null) limits.push(Math.max(0, input.expiresAtMs - input.now));
  if (limits.length === 0) return null;
  const lifetime = Math.min(...limits) * (0.8 + 0.2 * input.random);
  const early = lifetime - input.dispatchTimeoutMs;
  return Math.floor(early > 0 ? early : lifetime);
}
