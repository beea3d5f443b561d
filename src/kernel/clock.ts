/** The source of time. Code gets it as an argument, so that tests can control it. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /**
   * Milliseconds since a moment that is the same for all processes of a machine. Unlike {@link now} it never jumps
   * when the system clock is set. It may stand still while the machine sleeps.
   */
  monotonic(): number;
  /** Calls `task` once after `delayMs`; the returned function cancels it. Never keeps the process alive. */
  after(delayMs: number, task: () => void): () => void;
}

/** Timers of Node treat longer delays as 1 ms, or refuse them, so they are limited to this value (24.8 days). */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** `performance.now()` counts from the start of this process. */
const PROCESS_START_MS = Number(process.hrtime.bigint()) / 1e6 - performance.now();

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => PROCESS_START_MS + performance.now(),
  after(delayMs, task) {
    const timer = setTimeout(task, Math.min(delayMs, LONGEST_TIMER_MS));
    timer.unref();
    return () => clearTimeout(timer);
  },
};

/** A moment by both clocks, in milliseconds. */
export interface Moment {
  readonly nowMs: number;
  readonly monotonicMs: number;
}

export function momentOf(clock: Clock): Moment {
  return { nowMs: clock.now(), monotonicMs: clock.monotonic() };
}

/**
 * Milliseconds since `moment`: the larger number of both clocks, because the system clock may have been set back, and
 * the other one may have stood still.
 */
export function elapsedSince(moment: Moment, clock: Clock): number {
  return Math.max(clock.now() - moment.nowMs, clock.monotonic() - moment.monotonicMs);
}

/** @throws the reason of `signal` when it is aborted */
export function wait(delayMs: number, clock: Clock, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
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

/** Waits for some time, or until the function that `begin` gets is called. */
export function pauseUntil(
  ms: number,
  clock: Clock,
  begin: (end: () => void) => void,
): Promise<void> {
  return new Promise((resolve) => {
    const cancel = clock.after(ms, resolve);
    begin(() => {
      cancel();
      resolve();
    });
  });
}

/** Waits for some time, or until the client disconnects. */
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

/**
 * Calls `task` if no answer has arrived after this time; the returned function says that it has. If this process was
 * busy or paused, the answer may have arrived, but is read only after the timers.
 */
export function afterSilence(limitMs: number, clock: Clock, task: () => void): () => void {
  let cancel = clock.after(limitMs, () => {
    cancel = clock.after(0, task);
  });
  return () => cancel();
}

/** @throws what the promise does, or `tooLate` if it takes longer */
export function within<T>(
  limitMs: number,
  clock: Clock,
  promise: Promise<T>,
  tooLate: () => Error,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = afterSilence(limitMs, clock, () => reject(tooLate()));
    promise.then(resolve, reject).finally(cancel);
  });
}
