import type { Subscriber } from './subscriber.ts';

export interface DeadlineInput {
  /** Milliseconds since the Unix epoch, like the other times. */
  readonly now: number;
  /** `exp` of the token; null without one. */
  readonly expiresAtMs: number | null;
  /** 0 for none. */
  readonly writeTimeoutMs: number;
  readonly dispatchTimeoutMs: number;
  /** At least 0, less than 1. */
  readonly random: number;
}

/**
 * How long a stream may live, in milliseconds; null means for ever. A random time between 80 % and 100 % of
 * the shorter of token lifetime and write timeout, minus the time for a last write. A stream never outlives
 * `exp`, and streams that opened together do not end together.
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

/** The purpose of a stream's single timer. `stalled` and `gone` are for clients that read nothing. */
export type Due = 'over' | 'stalled' | 'gone' | 'heartbeat' | 'nothing';

/** Monotonic time of the next event of a stream; Infinity if there is none. */
export function nextDueAt(subscriber: Subscriber, nowMs: number): number {
  const { sendBuffer, options, ended } = subscriber;
  const { heartbeatMs, dispatchTimeoutMs } = options.settings;
  let due = sendBuffer.stallsAt(dispatchTimeoutMs) ?? Number.POSITIVE_INFINITY;
  if (ended !== null) return Math.min(due, nowMs + dispatchTimeoutMs);
  due = Math.min(due, subscriber.endsAtMs);
  if (heartbeatMs === 0) return due;
  // If data already waits, a heartbeat is not necessary.
  const silentSince = sendBuffer.isIdle ? sendBuffer.lastWriteMs : nowMs;
  return Math.min(due, silentSince + heartbeatMs);
}

/** What is due for a stream now. */
export function dueNow(subscriber: Subscriber, nowMs: number): Due {
  const { sendBuffer, options, ended, endsAtMs } = subscriber;
  const { heartbeatMs, dispatchTimeoutMs } = options.settings;
  if (ended !== null) {
    // The client does not even read the end of its stream.
    const takes = sendBuffer.stallsAt(dispatchTimeoutMs) !== null;
    return takes && !sendBuffer.isStalled(nowMs, dispatchTimeoutMs) ? 'nothing' : 'gone';
  }
  if (nowMs >= endsAtMs) return 'over';
  if (sendBuffer.isStalled(nowMs, dispatchTimeoutMs)) return 'stalled';
  const isSilent = sendBuffer.isIdle && nowMs - sendBuffer.lastWriteMs >= heartbeatMs;
  return heartbeatMs > 0 && isSilent ? 'heartbeat' : 'nothing';
}
