/**
 * Resolves when this process has sent what it has written to its sockets. The client of Redis does so with `setImmediate`,
 * and an answer is read after that.
 */
export async function afterSending(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}

/**
 * Halts this process, as a busy machine does. What others send to it in the meantime is in its sockets, and its timers are
 * overdue.
 */
export function pauseProcess(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
