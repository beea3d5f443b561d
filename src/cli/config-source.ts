import { Command, Option } from 'commander';
import type { Language } from '../hubfile/load.ts';
import { readFileSync } from 'node:fs';
import { whyUnreadable } from '../config/problem.ts';
import { HubgateError } from '../kernel/error.ts';
import { readRegularFile } from '../kernel/files.ts';

/** The configuration for a command. */
export interface ConfigSource {
  /** A file; `-` is standard input. */
  readonly config: string;
  /** The language of the file; by default the file extension decides. */
  readonly adapter?: Language;
  /** A file with variables in addition to those of the process. */
  readonly envfile?: string;
}

/** The variables for `{$VAR}` and `{env.VAR}` of a command. */
export function environmentOf(
  { envfile }: Pick<ConfigSource, 'envfile'>,
  read?: (content: Buffer | null) => void,
): NodeJS.ProcessEnv {
  return { ...process.env, ...readEnvFile(envfile, read) };
}

/** Adds the options of all commands that read a configuration. */
export function withConfigSource(
  command: Command,
  {
    adapters = ['hubfile', 'yaml', 'json'],
    standard = 'Hubfile',
  }: { readonly adapters?: readonly string[]; readonly standard?: string | null } = {},
): Command {
  const config = new Option('--config <file>', 'configuration file, "-" for standard input');
  return command
    .addOption(standard === null ? config : config.default(standard))
    .option('--envfile <file>', 'read environment variables (NAME=value) from a file')
    .addOption(
      new Option(
        '--adapter <language>',
        'language of the file, if the extension does not say it',
      ).choices(adapters),
    );
}

/** The options of a command that talks to a running gateway. */
export interface GatewayFlags extends ConfigSource {
  readonly address?: string;
}

/** The same for commands that talk to a running gateway. */
export function atGateway(name: string): Command {
  return withConfigSource(new Command(name)).option(
    '--address <address>',
    'admin address of the gateway, host:port or unix//path (default: the one in the file)',
  );
}

/**
 * Reads a file, or standard input for `-`.
 *
 * @throws HubgateError `unreadable-file`
 */
export function readInput(file: string): Buffer {
  try {
    return readFileSync(file === '-' ? 0 : file);
  } catch (cause) {
    throw unreadable(file, cause);
  }
}

export function unreadable(file: string, cause: unknown): HubgateError {
  const message = `Cannot read ${file}: ${whyUnreadable(cause)}`;
  return new HubgateError('unreadable-file', message, { cause });
}

/**
 * Reads variables from a file of `NAME=value` lines. `#` begins a comment line, and quotes around a value are
 * removed. Nothing is expanded. Empty without a file.
 *
 * @param read called with the content, or null if it cannot be read
 * @throws HubgateError `unreadable-file` or `invalid-envfile`, with the line
 */
function readEnvFile(
  file: string | undefined,
  read: (content: Buffer | null) => void = () => {},
): Record<string, string> {
  if (file === undefined) return {};
  const variables: Record<string, string> = {};
  for (const [index, line] of readLines(file, read).entries()) {
    const text = line.trim();
    if (text === '' || text.startsWith('#')) continue;
    const [, name, value = ''] = /^(?:export\s+)?([A-Za-z_]\w*)=(.*)$/.exec(text) ?? [];
    if (name === undefined) {
      throw new HubgateError('invalid-envfile', `${file}:${index + 1}: expected NAME=value`);
    }
    variables[name] = /^(["']).*\1$/.test(value) ? value.slice(1, -1) : value;
  }
  return variables;
}

function readLines(file: string, read: (content: Buffer | null) => void): string[] {
  let content: Buffer | null = null;
  try {
    content = readRegularFile(file);
    return content.toString('utf8').split(/\r?\n/);
  } catch (cause) {
    throw unreadable(file, cause);
  } finally {
    read(content);
  }
}
