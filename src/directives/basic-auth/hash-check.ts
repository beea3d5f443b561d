// Checking a bcrypt hash takes up to seconds of CPU, and no library does it in short steps, so
// threads do it. Client networks take fair turns, and addresses that have logged in before have
// every other turn. Correct passwords are remembered as digests under a key of the process, so that
// a page and its parts cost one check.

import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { clientNetwork, fairShareNetwork } from '../../http/client-network.ts';
import { HttpError } from '../../http/errors.ts';
import { codeOf } from '../../kernel/error.ts';
import { FairQueue } from '../../kernel/fair-queue.ts';

/** Threads that check passwords at most; one core is left to everything else, where there are several. */
const MAX_THREADS = 4;
/** Checks that wait for a thread, of known addresses and of others each. */
const MAX_WAITING = 256;
/** Addresses from which a right password has come; the one that is longest ago is forgotten first. */
const MAX_KNOWN = 10_000;

/** What a thread is asked. */
export interface Question {
  readonly password: string;
  readonly hash: string;
}

/**
 * The checks of passwords in this process. A check takes up to seconds of a processor, so threads of
 * their own make them, in fair turns: one of each client network, then the next of each. Addresses
 * from which a right password has come have every other turn, whoever else tries.
 */
export class PasswordChecks {
  readonly #ask: (question: Question) => Promise<boolean>;
  readonly #queue: FairQueue;
  readonly #known = new Set<string>();

  /** @param places how many are asked at once */
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
   * Whether a password has a hash, which {@link hashAlgorithm} knows.
   *
   * @param address of the client
   * @throws HttpError 503 when too many are waiting
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

  /** A right password has come from an address. */
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
      throw new HttpError(503, 'too many passwords are being checked at the moment at the moment', {
        cause,
      });
    }
  }
}

/** Threads that have nothing to do. */
const idle: Worker[] = [];

async function askThread(question: Question): Promise<boolean> {
  const thread = idle.pop() ?? startThread();
  // Rejects where the thread fails; the next check starts a new one.
  const answered = once(thread, 'message');
  thread.postMessage(question);
  const [answer]: unknown[] = await answered;
  idle.push(thread);
  return answer === true;
}

/** From the build, also where the rest runs from source: threads load no TypeScript. */
function startThread(): Worker {
  const started = new Worker(fileURLToPath(import.meta.resolve('#password-thread')));
  started.unref();
  // Told to whoever waits for an answer; unheard it would end the process.
  started.on('error', () => {
    const at = idle.indexOf(started);
    if (at !== -1) idle.splice(at, 1);
  });
  return started;
}

/** All of this process. */
export const passwordChecks = new PasswordChecks(
  askThread,
  Math.max(1, Math.min(MAX_THREADS, availableParallelism() - 1)),
);
