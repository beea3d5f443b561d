// Checking a bcrypt hash takes up to seconds of CPU time, and no library does it in short steps, so threads
// do it. Client networks take fair turns, and addresses that have logged in before get every other turn.
// Correct passwords are remembered as digests under a key of the process, so that a page and its parts cost
// one check.

import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { clientNetwork, fairShareNetwork } from '../../http/rate-limits.ts';
import { HttpError } from '../../http/errors.ts';
import { addNewest } from '../../kernel/collections.ts';
import { codeOf } from '../../kernel/error.ts';
import { FairQueue } from '../../kernel/semaphore.ts';
import type { Clock } from '../../kernel/clock.ts';

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
      unknownPlaces: places,
      placesPerUnknown: places,
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
    addNewest(this.#known, client, MAX_KNOWN);
  }

  async #turn(network: string, isKnown: boolean): Promise<() => void> {
    try {
      return await this.#queue.take(network, isKnown);
    } catch (cause) {
      if (codeOf(cause) !== 'queue-full') throw cause;
      throw new HttpError(503, 'too many passwords are being checked', { cause });
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

/** Wrong passwords of one client within the window. Then it has to wait. */
const MAX_FAILURES = 20;
const WINDOW_MS = 60_000;
/** Concurrent checks of one client. */
const MAX_AT_ONCE = 4;
/** Clients that are remembered; beyond it, the one with the longest inactivity is forgotten. */
const MAX_CLIENTS = 10_000;

interface Client {
  failures: number;
  /** Time at which the window of these failures began, by the monotonic clock. */
  since: number;
  atOnce: number;
}

/** Limits the password checks of each client of one `basic_auth`. */
export class Attempts {
  readonly #clock: Clock;
  readonly #clients = new Map<string, Client>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Milliseconds until a client may cause its next check; 0 if it need not wait. */
  waitMs(address: string): number {
    const client = this.#current(address);
    if (client.atOnce >= MAX_AT_ONCE) return 1_000;
    if (client.failures < MAX_FAILURES) return 0;
    return client.since + WINDOW_MS - this.#clock.monotonic();
  }

  begin(address: string): void {
    const client = this.#current(address);
    client.atOnce += 1;
    this.#clients.delete(address);
    this.#clients.set(address, client);
    if (this.#clients.size <= MAX_CLIENTS) return;
    for (const [other, { atOnce }] of this.#clients) {
      if (atOnce > 0) continue;
      this.#clients.delete(other);
      break;
    }
  }

  failed(address: string): void {
    this.#current(address).failures += 1;
  }

  end(address: string): void {
    this.#current(address).atOnce -= 1;
  }

  #current(address: string): Client {
    const now = this.#clock.monotonic();
    const known = this.#clients.get(address);
    if (known === undefined) return { failures: 0, since: now, atOnce: 0 };
    if (known.since + WINDOW_MS <= now) Object.assign(known, { failures: 0, since: now });
    return known;
  }
}
