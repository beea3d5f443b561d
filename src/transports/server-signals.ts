import type { TransportSignals } from '../hub/transport.ts';
import type { Logger } from '../kernel/log.ts';

/** Signals that wait here while the server is unavailable. Beyond this, the oldest are dropped. */
const WAITING = 10_000;

/** Signals to the hubs of all nodes, next to the history. Those that cannot be stored now wait for the server. */
export abstract class ServerSignals<Session> implements TransportSignals {
  protected listener: (message: string) => void = () => {};
  readonly #log: Logger;
  #waiting: string[] = [];
  #dropped = 0;
  #sent: Promise<unknown> = Promise.resolve();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Stores a signal. Its error means that the server is unavailable. */
  protected abstract store(message: string): Promise<void>;

  /** Skips the signals that are stored by now: they do not concern a process that had no streams at the time. */
  abstract begin(session: Session): Promise<void>;

  /** Passes on the signals that have arrived and that no other read has passed on. */
  abstract catchUp(session: Session): Promise<void>;

  /** Passes on the signals that have arrived since the last session. */
  resume(session: Session): Promise<void> {
    return this.catchUp(session);
  }

  send(message: string): Promise<boolean> {
    const stored = this.store(message).then(
      () => true,
      () => {
        this.#waiting.push(message);
        if (this.#waiting.length > WAITING) {
          this.#waiting.shift();
          this.#dropped += 1;
        }
        return false;
      },
    );
    // It must not resolve to what the earlier ones resolve to: that would keep a link for each signal in memory.
    const sent = Promise.all([stored, this.#sent]).then(() => stored);
    this.#sent = sent;
    return sent;
  }

  receive(listener: (message: string) => void): void {
    this.listener = listener;
  }

  /** Resolves when each signal so far is stored, or waits for the server to be back. Updates that follow wait for it. */
  get sent(): Promise<unknown> {
    return this.#sent;
  }

  /** This process ends: what still waits is lost. Nobody else knows of a session that has ended, for example. */
  end(): void {
    const signals = this.#waiting.length + this.#dropped;
    if (signals === 0) return;
    const message = 'Other nodes do not know of revoked tokens, ended sessions or purges';
    this.#log.error(message, { signals });
  }

  /** Sends the waiting signals again. */
  flush(): void {
    const messages = this.#waiting;
    this.#waiting = [];
    for (const message of messages) void this.send(message);
  }
}
