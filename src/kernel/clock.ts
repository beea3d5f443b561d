/** The time, passed in wherever it matters, so that a test can turn it. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Milliseconds since some fixed moment; unlike {@link now} it never jumps when the clock is set. */
  monotonic(): number;
  /** Calls `task` once after `delayMs`; the returned function cancels it. Never keeps the process alive. */
  after(delayMs: number, task: () => void): () => void;
}

/** setTimeout clamps longer delays to 1 ms, so they are cut to this (24.8 days). */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delayMs, task) {
    const timer = setTimeout(task, Math.min(delayMs, LONGEST_TIMER_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};

/** @throws the reason of `signal` as soon as it is aborted */
export function wait(delayMs: number, clock: Clock, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const cancel = clock.after(delayMs, () => {
      signal.removeEventListener('abort', stop);
      resolve();
    });
    function stop(): void {
      cancel();
      reject(signal.reason);
    }
    signal.addEventListener('abort', stop, { once: true });
  });
}

/** Waits, at most until a client leaves. */
export function pause(
  clock: Clock,
  ms: number,
  client: { onAbandoned(listener: () => void): () => void },
): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      cancel();
      forget();
      resolve();
    };
    const cancel = clock.after(ms, done);
    const forget = client.onAbandoned(done);
  });
}
