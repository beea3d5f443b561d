import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { REDACTED } from '../../kernel/secret.ts';
import type { Output } from '../terminal.ts';

const SECRET_VARIABLE =
  /KEY|SECRET|TOKEN|JWT|PASS|PW$|SALT|HASH|CREDENTIAL|AUTH|COOKIE|PRIVATE|DSN|_URL$/i;
/** The hash of a password, a token, or a URL with a password. */
const SECRET_VALUE = /^\$(?:2[aby]|argon2\w*)\$|^eyJ|:\/\/[^/\s]*@/;

function isSecret(name: string, value = ''): boolean {
  return SECRET_VARIABLE.test(name) || SECRET_VALUE.test(value);
}

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

/** `hubgate environ`: prints the program's location and environment. */
export function environCommand(output: Output): Command {
  return new Command('environ')
    .description(
      'print the version, the paths and the environment, without what looks like a secret by its name or value',
    )
    .option('--json', 'print them as JSON')
    .action(async ({ json = false }: { readonly json?: boolean }) => {
      // Imported only now: `hubgate --version` reads this file as well.
      const { defaultStorage } = await import('../../tls/storage.ts');
      const own = {
        'hubgate.version': packageVersion(),
        'hubgate.storage': defaultStorage(),
        'hubgate.directory': process.cwd(),
        'node.version': process.version,
        'node.platform': `${process.platform} ${process.arch}`,
      };
      const surroundings = Object.entries(process.env)
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([name, value]) => [name, isSecret(name, value) ? REDACTED : value] as const);
      const all = [...Object.entries(own), ...surroundings];
      if (json) output.result(JSON.stringify(Object.fromEntries(all)));
      else for (const [name, value] of all) output.result(`${name}=${value}`);
    });
}
