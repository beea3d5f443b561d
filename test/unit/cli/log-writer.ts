import { LogFile } from '../../../src/cli/log-file.ts';
import { systemClock } from '../../../src/kernel/clock.ts';

/*
 * A process that writes to a log which is rotated again and again: `log-writer.ts PATH NAME COUNT`. Its lines are
 * `NAME NUMBER`. It fails if a line is dropped.
 */
const [path = '', name = '', count = ''] = process.argv.slice(2);
const file = new LogFile({
  path,
  roll: { size: 1024 ** 2, keep: 100_000, keepForMs: 0, intervalMs: 5 },
  mode: '0600',
  clock: systemClock,
  onTrouble(text) {
    process.stderr.write(`${text}\n`);
    process.exitCode = 1;
  },
});
for (let line = 0; line < Number(count); line += 1) file.write(`${name} ${line}\n`);
file.close();
process.disconnect();
