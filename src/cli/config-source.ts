import { type Command, Option } from 'commander';
import { readEnvFile } from './env-file.ts';
import type { Language } from '../hubfile/load.ts';

/** Which configuration a command is about. */
export interface ConfigSource {
  /** A file; `-` is standard input. */
  readonly config: string;
  /** What it is written in; else the extension decides. */
  readonly adapter?: Language;
  /** File of variables beside those of the process. */
  readonly envfile?: string;
}

/** The variables for `{$VAR}` and `{env.VAR}` of a command. */
export function environmentOf(
  { envfile }: Pick<ConfigSource, 'envfile'>,
  read?: (content: Buffer | null) => void,
): NodeJS.ProcessEnv {
  return { ...process.env, ...readEnvFile(envfile, read) };
}

/** Adds the options that every command has that reads a configuration. */
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
        'what it is written in, if the extension does not say it',
      ).choices(adapters),
    );
}
