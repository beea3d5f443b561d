import { Command } from 'commander';
import { defaultStorage } from '../../runtime/default-storage.ts';
import type { Output } from '../output.ts';
import { packageVersion } from '../package-version.ts';

const SECRET_VARIABLE = /KEY|SECRET|TOKEN|PASS|CREDENTIAL|AUTH|COOKIE|PRIVATE|DSN|_URL$/i;

/** `hubgate environ`: where and in what surroundings the program runs. */
export function environCommand(output: Output): Command {
  return new Command('environ')
    .description('print the version, the paths and the environment; secrets are left out')
    .action(() => {
      const own = {
        'hubgate.version': packageVersion(),
        'hubgate.storage': defaultStorage(),
        'hubgate.directory': process.cwd(),
        'node.version': process.version,
        'node.platform': `${process.platform} ${process.arch}`,
      };
      for (const [name, value] of Object.entries(own)) output.result(`${name}=${value}`);
      for (const [name, value] of Object.entries(process.env).sort(byName)) {
        output.result(`${name}=${SECRET_VARIABLE.test(name) ? '[redacted]' : value}`);
      }
    });
}

function byName([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return a < b ? -1 : 1;
}
