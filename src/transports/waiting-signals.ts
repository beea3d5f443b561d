/** Signals that wait here while the server is unavailable. Beyond this, the oldest are dropped. */
const WAITING = 10_000;

/** Sends signals to the other nodes one by one, and keeps those that could not be sent. */
export class WaitingSignals {
  readonly #store: (message: string) => Promise<void>;
  #waiting: string[] = [];
  #sent: Promise<unknown> = Promise.resolve();

  /** @param store stores a signal; its error means that the server is unavailable */
  constructor(store: (message: string) => Promise<void>) {
    this.#store = store;
  }

  send(message: string): void {
    const sent = this.#store(message).catch(() => {
      this.#waiting.push(message);
      if (this.#waiting.length > WAITING) this.#waiting.shift();
    });
    this.#sent = Promise.all([this.#sent, sent]);
  }

  /** Resolves when each signal so far is stored, or waits for the server to be back. Updates that follow wait for it. */
  get sent(): Promise<unknown> {
    return this.#sent;
  }

  /** Sends the waiting signals again. */
  flush(): void {
    const messages = this.#waiting;
    this.#waiting = [];
    for (const message of messages) this.send(message);
  }
}
