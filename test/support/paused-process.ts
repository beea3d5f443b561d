/** Resolves when this process has sent what it has written to its sockets, before it reads any answer. */
export async function afterSending(): Promise<void> {
  for (let turns = 0; turns < 3; turns += 1) await Promise.resolve();
  await new Promise<void>((resolve) => process.nextTick(resolve));
}

/**
 * Halts this process, as a busy machine does. What others send to it in the meantime is in its sockets, and its timers are
 * overdue.
 */
export function pauseProcess(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
