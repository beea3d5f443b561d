import type { Clock } from '../../kernel/clock.ts';

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
