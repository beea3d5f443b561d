import type { Logger } from '../kernel/log.ts';
import type { Logs } from './log-output.ts';
import type { Clock } from '../kernel/clock.ts';

/**
 * Takes the two signals that Node would obey in its own way: `SIGUSR1` opens a debugger, by which any
 * program of this user could run code here, and `SIGUSR2` ends the process without a word. From now
 * on the first begins log files again, and the second does nothing but say so.
 */
export function handleUserSignals(): { apply(log: Logger, logs: Logs): void } {
  let reopen = (): void => {};
  let say = (): void => {};
  process.on('SIGUSR1', () => reopen());
  process.on('SIGUSR2', () => say());
  return {
    apply(log, logs) {
      reopen = () => {
        logs.reopen();
        log.info('Log files reopened', { signal: 'SIGUSR1' });
      };
      say = () => log.info('SIGUSR2 has no effect; SIGHUP reloads, SIGTERM stops');
    },
  };
}

/** What a signal that asks for the end of the program means. */
export type Meaning = 'stop' | 'force' | 'repeated';

/**
 * A Ctrl-C that comes twice. The terminal signals the gateway and the programs that started it, and some
 * of these (`npx` is one) pass the signal on. In this time nobody types a second one on purpose.
 */
const SAME_KEY_MS = 300;

/** Tells the first signal, which stops in good order, from a second one, which cuts what is in flight. */
export class StopSignals {
  readonly #clock: Clock;
  #isStopping = false;
  #interruptedAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The stop has another reason, such as the admin API: the next signal is a second one. */
  stopping(): void {
    this.#isStopping = true;
  }

  meaning(signal: 'SIGINT' | 'SIGTERM'): Meaning {
    if (signal === 'SIGINT') {
      const since = this.#clock.monotonic() - this.#interruptedAt;
      if (since < SAME_KEY_MS) return 'repeated';
      this.#interruptedAt = this.#clock.monotonic();
    }
    if (this.#isStopping) return 'force';
    this.#isStopping = true;
    return 'stop';
  }
}
