// Checking a bcrypt hash takes up to seconds of CPU time, and no library does it in short steps, so threads
// do it. Client networks take fair turns, and addresses that have logged in before get every other turn.
// Correct passwords are remembered as digests under a key of the process, so that a page and its parts cost
// one check.

import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { clientNetwork, fairShareNetwork } from '../../http/client-network.ts';
import { HttpError } from '../../http/errors.ts';
import { codeOf } from '../../kernel/error.ts';
import { FairQueue } from '../../kernel/fair-queue.ts';

/** Most threads that check passwords. If there are several cores, one is left to everything else. */
const MAX_THREADS = 4;
/** Checks that wait for a thread, separately for known addresses and for others. */
const MAX_WAITING = 256;
/**
 * Addresses that have sent a correct password; the one whose last success is longest ago is forgotten first.
 */
const MAX_KNOWN = 10_000;

/** A request to a thread. */
export interface Question {
  readonly password: string;
  readonly hash: string;
}

/**
 * The password checks of this process. A check takes up to seconds of CPU time, so separate threads do it, in
 * fair turns: one check of each client network, then the next of each. Addresses that have sent a correct
 * password get every other turn, however many others try.
 */
export class PasswordChecks {
  readonly #ask: (question: Question) => Promise<boolean>;
  readonly #queue: FairQueue;
  readonly #known = new Set<string>();

  /** @param places number of concurrent checks */
  constructor(ask: (question: Question) => Promise<boolean>, places: number) {
    this.#ask = ask;
    this.#queue = new FairQueue({
      places,
      placesOfStrangers: places,
      placesOfStranger: places,
      maxWaiting: MAX_WAITING,
    });
  }

  /**
   * Whether a password matches a hash, whose algorithm {@link hashAlgorithm} knows.
   *
   * @param address of the client
   * @throws HttpError 503 if too many checks are waiting
   */
  async matches(question: Question, address: string): Promise<boolean> {
    const isKnown = this.#known.has(clientNetwork(address));
    const giveBack = await this.#turn(fairShareNetwork(address), isKnown);
    try {
      return await this.#ask(question);
    } finally {
      giveBack();
    }
  }

  /** Records that a correct password has come from an address. */
  remember(address: string): void {
    const client = clientNetwork(address);
    this.#known.delete(client);
    this.#known.add(client);
    const [oldest] = this.#known;
    if (this.#known.size > MAX_KNOWN && oldest !== undefined) this.#known.delete(oldest);
  }

  async #turn(network: string, isKnown: boolean): Promise<() => void> {
    try {
      return await this.#queue.take(network, isKnown);
    } catch (cause) {
      if (codeOf(cause) !== 'queue-full') throw cause;
      throw new HttpError(
        503,
        'too many passwords are being checked at the moment at the moment at the moment',
        {
          cause,
        },
      );
    }
  }
}

/** Idle threads. */
const idle: Worker[] = [];

async function askThread(question: Question): Promise<boolean> {
  const thread = idle.pop() ?? startThread();
  // Rejects if the thread fails; the next check starts a new one.
  const answered = once(thread, 'message');
  thread.postMessage(question);
  const [answer]: unknown[] = await answered;
  idle.push(thread);
  return answer === true;
}

/** From the build, even if the rest runs from source, because threads load no TypeScript. */
function startThread(): Worker {
  const started = new Worker(fileURLToPath(import.meta.resolve('#password-thread')));
  started.unref();
  // Callers that wait for a result are notified. Without a listener, the error would end the process.
  started.on('error', () => {
    const at = idle.indexOf(started);
    if (at !== -1) idle.splice(at, 1);
  });
  return started;
}

/** The checks of the whole process. */
export const passwordChecks = new PasswordChecks(
  askThread,
  Math.max(1, Math.min(MAX_THREADS, availableParallelism() - 1)),
);
