/** Counts of a key in the window that runs and the one before it, `elapsedMs` into the former. */
export interface WindowCounts {
  readonly current: number;
  readonly previous: number;
  readonly elapsedMs: number;
}

export interface Quota {
  readonly events: number;
  readonly windowMs: number;
}

export interface Verdict {
  readonly allowed: boolean;
  /** Events that are left, this one taken off. */
  readonly remaining: number;
  /** Until one more is allowed, or, where one is, until the window ends. */
  readonly waitMs: number;
}

/**
 * What one more event would be. The window before counts for as much of it as still lies within a
 * window's length: it slides, at the price of two numbers for each key.
 */
export function verdictOf(counts: WindowCounts, { events, windowMs }: Quota): Verdict {
  const { current, previous, elapsedMs } = counts;
  const used = previous * (1 - elapsedMs / windowMs) + current;
  if (used + 1 <= events) {
    return {
      allowed: true,
      remaining: Math.floor(events - used - 1),
      waitMs: windowMs - elapsedMs,
    };
  }
  const spare = events - 1 - current;
  // The share of the window that must have gone by until enough of the one before is forgotten.
  const waitMs =
    spare >= 0
      ? windowMs * (1 - spare / previous) - elapsedMs
      : windowMs - elapsedMs + windowMs * Math.max(0, 1 - (events - 1) / current);
  return { allowed: false, remaining: 0, waitMs: Math.max(1, waitMs) };
}
