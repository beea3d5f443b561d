import type { Logger } from '../kernel/log.ts';
import type { Logs } from './log-output.ts';

/**
 * Takes the two signals that Node would obey in its own way: `SIGUSR1` opens a debugger, by which any
 * program of this user could run code here, and `SIGUSR2` ends the process without a word. From now
 * on the first begins log files anew, and the second does nothing but say so.
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
        log.info('Log files were opened again', { signal: 'SIGUSR1' });
      };
      say = () => log.info('SIGUSR2 means nothing here; SIGHUP reloads, SIGTERM stops');
    },
  };
}
