import type Inspector from 'node:inspector';
import type { Logger } from '../kernel/log.ts';
import type { Logs } from './log-output.ts';
import type { Clock } from '../kernel/clock.ts';

/** The options with which a user asks for a debugger. `--inspect-port` alone opens none. */
const DEBUGGER = /(?:^|\s)--inspect(?:-brk|-wait)?(?:[=\s]|$)/;

/** When a debugger is looked for: a thread of Node opens it, some time after the signal. */
const DEBUGGER_LOOKS_MS: readonly number[] = [0, 100, 1_000];

/** Closes a debugger that `SIGUSR1` has opened before JavaScript ran, and not one that an editor has. */
function closeUnwantedDebugger(): void {
  const { execArgv, env } = process;
  const options = [...execArgv, env['NODE_OPTIONS'] ?? ''].join(' ');
  if (DEBUGGER.test(options) || env['VSCODE_INSPECTOR_OPTIONS'] !== undefined) return;
  // A Node may be built without it, which the types do not say.
  const inspector: typeof Inspector | undefined = process.getBuiltinModule('node:inspector');
  if (inspector?.url() !== undefined) inspector.close();
}

/**
 * Handles the two signals for which Node has a default of its own: `SIGUSR1` opens a debugger, through which
 * any program of this user could run code here, and `SIGUSR2` silently ends the process. From now on, the
 * first reopens the log files, and the second is only logged.
 */
export function handleUserSignals(): { apply(log: Logger, logs: Logs): void } {
  for (const ms of DEBUGGER_LOOKS_MS) setTimeout(closeUnwantedDebugger, ms).unref();
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

/** The meaning of a signal that asks the program to end. */
export type Meaning = 'stop' | 'force' | 'repeated';

/**
 * Time in which a second Ctrl-C counts as a duplicate. The terminal signals the gateway and the programs that
 * started it, and some of these (such as `npx`) pass the signal on. Nobody presses the keys twice on purpose
 * in this time.
 */
const SAME_KEY_MS = 300;

/**
 * Distinguishes the first signal, which stops in good order, from a second one, which cuts requests in
 * progress.
 */
export class StopSignals {
  readonly #clock: Clock;
  #isStopping = false;
  #interruptedAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The stop has another cause, such as the admin API. The next signal counts as a second one. */
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
