// No process ends in the middle of an LMDB write. A thread of a native library may hold a lock for which other
// processes wait, or may wait for this thread. An exit in the middle of such work hangs or crashes. `endProcess`
// waits for it. Any other exit during a write, and a worker whose main process is gone, ends by SIGKILL, after
// which the system releases the lock.

/** How long the end of the process waits for such work, in milliseconds. */
const END_TIMEOUT_MS = 2_000;

let underway = 0;
let isWatching = false;
let isEnding = false;
const waiting: (() => void)[] = [];

/** Whether the process is ending, so that no such work may begin. */
export function processIsEnding(): boolean {
  return isEnding;
}

/** Runs work that an exit of the process must not interrupt. */
export async function uncut<Result>(work: () => Promise<Result>): Promise<Result> {
  if (!isWatching) {
    isWatching = true;
    // This handler runs before those of libraries, which would wait for work of this very thread. The system
    // releases the locks of a killed process.
    process.prependListener('exit', () => {
      if (underway > 0) killThisProcess();
    });
  }
  underway += 1;
  try {
    return await work();
  } finally {
    underway -= 1;
    if (underway === 0) for (const resolve of waiting.splice(0)) resolve();
  }
}

/**
 * Ends the process with this code after the work that must not be interrupted. No more such work begins. If
 * it takes longer than 2 seconds, it is waiting for another process, and this process ends by SIGKILL.
 */
export async function endProcess(code: number): Promise<never> {
  await finishUncut();
  process.exit(code);
}

/** Resolves when no such work is in progress. No more such work begins. Otherwise like {@link endProcess}. */
export async function finishUncut(): Promise<void> {
  isEnding = true;
  if (underway === 0) return;
  const cancel = setTimeout(killThisProcess, END_TIMEOUT_MS);
  await new Promise<void>((resolve) => waiting.push(resolve));
  clearTimeout(cancel);
}

/** Ends the process at once, without running exit handlers. */
export function killThisProcess(): void {
  process.kill(process.pid, 'SIGKILL');
  // The first process of a container is immune to its own SIGKILL.
  if (process.pid === 1) process.abort();
}
