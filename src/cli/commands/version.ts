import { Command } from 'commander';
import type { Output } from '../output.ts';
import { packageVersion } from '../package-version.ts';

/** `hubgate version` */
export function versionCommand(output: Output): Command {
  return new Command('version')
    .description('print the version')
    .action(() => output.result(packageVersion()));
}
