import { Command } from 'commander';
import type { Output } from '../output.ts';
import { packageVersion } from '../package-version.ts';

/** `hubgate version` */
export function versionCommand(output: Output): Command {
  return new Command('version')
    .description('print the version')
    .option('--json', 'print it as JSON, with that of Node')
    .action(({ json = false }: { readonly json?: boolean }) => {
      const version = packageVersion();
      output.result(json ? JSON.stringify({ version, node: process.version }) : version);
    });
}
