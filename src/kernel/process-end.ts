// No process ends in the middle of an LMDB write. `endProcess` waits for writes. Any other exit
// during one, and a worker whose main process is gone, ends by SIGKILL, after which the system
// releases the lock.

/**
 * Work of this process that an exit must not cut. A native library's thread may hold a lock that other
 * processes wait for, or wait for this thread itself: an exit in the middle of that never ends, or crashes.
 */

/** How long the end of the process waits for such work. */
const PATIENCE_MS = 2_000;

let underway = 0;
let isWatching = false;
let isEnding = false;
const waiting: (() => void)[] = [];

/** Whether the process is at its end: such work may not begin any more. */
export function processIsEnding(): boolean {
  return isEnding;
}

/** Does work that must not be cut by an exit of the process. */
export async function uncut<Result>(work: () => Promise<Result>): Promise<Result> {
  if (!isWatching) {
    isWatching = true;
    // Before those of libraries, which would wait for what is underway in this very thread. The system
    // gives the locks of a killed process back.
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
 * Ends the process with this code once the work is done that must not be cut; no more of it begins. Work
 * that takes longer than 2 s waits for somebody else: then the process ends by SIGKILL.
 */
export async function endProcess(code: number): Promise<never> {
  await finishUncut();
  process.exit(code);
}

/** Resolves when no such work is underway; no more of it begins. As {@link endProcess} otherwise. */
export async function finishUncut(): Promise<void> {
  isEnding = true;
  if (underway === 0) return;
  const cancel = setTimeout(killThisProcess, PATIENCE_MS);
  await new Promise<void>((resolve) => waiting.push(resolve));
  clearTimeout(cancel);
}

/** Ends the process at once, with nothing of what an exit does. */
export function killThisProcess(): void {
  process.kill(process.pid, 'SIGKILL');
}
