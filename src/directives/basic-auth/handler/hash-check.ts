import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { HttpError } from '../../../http/errors.ts';

/** Checks that wait for the thread; whoever comes then is asked to come again. */
const MAX_WAITING = 64;

/** What the thread is asked. */
export interface Question {
  readonly password: string;
  readonly hash: string;
}

let thread: Worker | null = null;
let waiting = 0;
let last: Promise<unknown> = Promise.resolve();

/**
 * Whether a password has a hash, which {@link hashAlgorithm} knows. A check takes up to seconds of a
 * processor: it is made in the one thread of the process for it, one after another.
 *
 * @throws HttpError 503 when too many are waiting
 */
export async function matchesHash(password: string, hash: string): Promise<boolean> {
  if (waiting >= MAX_WAITING) throw new HttpError(503, 'too many passwords are being checked');
  waiting += 1;
  const answer = last.then(() => ask({ password, hash }));
  last = answer.catch(() => {});
  try {
    return await answer;
  } finally {
    waiting -= 1;
  }
}

async function ask(question: Question): Promise<boolean> {
  thread ??= startThread();
  const answered = once(thread, 'message');
  thread.postMessage(question);
  const [answer]: unknown[] = await answered;
  return answer === true;
}

/** From the build, also where the rest runs from source: threads load no TypeScript. */
function startThread(): Worker {
  const started = new Worker(fileURLToPath(import.meta.resolve('#password-thread')));
  started.unref();
  // Whoever waits for an answer is told too, by `once`; the next check starts a new thread.
  started.on('error', () => {
    thread = null;
  });
  return started;
}
