import { type Clock, within } from './clock.ts';
import { HubgateError } from './error.ts';

/** How long a request waits for an answer that it can do without, and how long nobody asks after a failure. */
const ANSWER_MS = 1_000;
const REST_MS = 5_000;

/** Keeps requests from waiting for a service whose answers they can do without, as long as it does not give them. */
export class CircuitBreaker {
  readonly #clock: Clock;
  #openUntil = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether the service has failed a moment ago, so that nobody should ask it. */
  get isOpen(): boolean {
    return this.#clock.monotonic() < this.#openUntil;
  }

  /** @throws what the answer throws, or HubgateError `transport-failed` if it takes too long */
  async limit<T>(answer: Promise<T>): Promise<T> {
    const message = `The store did not answer within ${ANSWER_MS} ms`;
    const tooLate = (): Error => new HubgateError('transport-failed', message);
    try {
      return await within(ANSWER_MS, this.#clock, answer, tooLate);
    } catch (error) {
      this.#openUntil = this.#clock.monotonic() + REST_MS;
      throw error;
    }
  }
}
