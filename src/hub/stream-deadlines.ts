import type { Subscriber } from './subscriber.ts';

/** What a stream's one timer was for: `stalled` and `gone` are those who take nothing. */
export type Due = 'over' | 'stalled' | 'gone' | 'heartbeat' | 'nothing';

/** Monotonic time at which something becomes due of a stream; Infinity for never. */
export function nextDueAt(subscriber: Subscriber, nowMs: number): number {
  const { sendBuffer, options, ended } = subscriber;
  const { heartbeatMs, dispatchTimeoutMs } = options.settings;
  let due = sendBuffer.stallsAt(dispatchTimeoutMs) ?? Number.POSITIVE_INFINITY;
  if (ended !== null) return Math.min(due, nowMs + dispatchTimeoutMs);
  due = Math.min(due, subscriber.endsAtMs);
  if (heartbeatMs === 0) return due;
  // Where something waits already there is nothing to add.
  const silentSince = sendBuffer.isIdle ? sendBuffer.lastWriteMs : nowMs;
  return Math.min(due, silentSince + heartbeatMs);
}

/** What is due of a stream now. */
export function dueNow(subscriber: Subscriber, nowMs: number): Due {
  const { sendBuffer, options, ended, endsAtMs } = subscriber;
  const { heartbeatMs, dispatchTimeoutMs } = options.settings;
  if (ended !== null) {
    // It may not even take the end of its stream.
    const takes = sendBuffer.stallsAt(dispatchTimeoutMs) !== null;
    return takes && !sendBuffer.isStalled(nowMs, dispatchTimeoutMs) ? 'nothing' : 'gone';
  }
  if (nowMs >= endsAtMs) return 'over';
  if (sendBuffer.isStalled(nowMs, dispatchTimeoutMs)) return 'stalled';
  const isSilent = sendBuffer.isIdle && nowMs - sendBuffer.lastWriteMs >= heartbeatMs;
  return heartbeatMs > 0 && isSilent ? 'heartbeat' : 'nothing';
}
