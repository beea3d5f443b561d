import { Command } from 'commander';
import type { Output } from '../terminal.ts';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** `hubgate version` */
export function versionCommand(output: Output): Command {
  return new Command('version')
    .description('print the version')
    .option('--json', 'print the versions of hubgate and Node as JSON')
    .action(({ json = false }: { readonly json?: boolean }) => {
      const version = packageVersion();
      output.result(json ? JSON.stringify({ version, node: process.version }) : version);
    });
}

/** The version in this package's own package.json. */
export function packageVersion(): string {
  const text = readFileSync(fileURLToPath(import.meta.resolve('hubgate/package.json')), 'utf8');
  const { version }: { version?: unknown } = JSON.parse(text);
  return String(version);
}
