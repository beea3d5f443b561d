import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { systemClock } from '../kernel/clock.ts';
import { messageOf } from '../kernel/error.ts';
import { FailureLog, type Logger } from '../kernel/log.ts';

/** Time limit of the program that passes on a message. */
const TIMEOUT_MS = 5_000;

/**
 * Reports the state of the service to systemd (`sd_notify`), if systemd asks for it. Node cannot write to a
 * Unix datagram socket, so systemd's own program does it. The unit needs `NotifyAccess=all`.
 *
 * @see https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
 */
export class ServiceManager {
  readonly #environment: NodeJS.ProcessEnv;
  readonly #log: Logger;
  /** Messages are sent one after the other. Otherwise RELOADING could overtake READY. */
  #queue: Promise<void> = Promise.resolve();
  readonly #failures = new FailureLog('systemd could not be notified', 'warn', systemClock);
  #stopWatchdog: () => void = () => {};
  /** A load may still be in progress, or follow. */
  #isStopping = false;

  constructor(environment: NodeJS.ProcessEnv, log: Logger) {
    this.#environment = environment;
    this.#log = log;
  }

  get #isAsked(): boolean {
    return (this.#environment['NOTIFY_SOCKET'] ?? '') !== '';
  }

  /**
   * Reports that the gateway serves. From now on it notifies the watchdog regularly, which a blocked event
   * loop does not do.
   */
  ready(status: string): void {
    if (this.#isStopping) return;
    this.#notify('READY=1', `STATUS=${status}`, `MAINPID=${process.pid}`);
    this.#stopWatchdog();
    const microseconds = Number(this.#environment['WATCHDOG_USEC'] ?? 0);
    if (!this.#isAsked || !(microseconds > 0)) return;
    const feed = (): void => {
      this.#notify('WATCHDOG=1');
      // Twice as often as required.
      this.#stopWatchdog = systemClock.after(microseconds / 2000, feed);
    };
    feed();
  }

  reloading(): void {
    if (this.#isStopping) return;
    const microseconds = process.hrtime.bigint() / 1000n;
    this.#notify('RELOADING=1', `MONOTONIC_USEC=${microseconds}`);
  }

  /** Resolves when the message has been sent. */
  async stopping(): Promise<void> {
    this.#isStopping = true;
    this.#stopWatchdog();
    this.#notify('STOPPING=1', 'STATUS=Stopping');
    await this.#queue;
  }

  #notify(...message: readonly string[]): void {
    if (!this.#isAsked) return;
    this.#queue = this.#queue.then(async () => {
      try {
        const options = { env: this.#environment, timeout: TIMEOUT_MS };
        // For lack of memory, it throws at once.
        await promisify(execFile)('systemd-notify', message, options);
      } catch (error) {
        this.#failures.write(this.#log, { state: message[0], error: messageOf(error) });
      }
    });
  }
}
