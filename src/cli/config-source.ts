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
export function environmentOf({ envfile }: Pick<ConfigSource, 'envfile'>): NodeJS.ProcessEnv {
  return { ...process.env, ...readEnvFile(envfile) };
}

/** Adds the options that every command has that reads a configuration. */
export function withConfigSource(command: Command): Command {
  return command
    .option('--config <file>', 'configuration file, "-" for standard input', 'Hubfile')
    .option('--envfile <file>', 'read environment variables (NAME=value) from a file')
    .addOption(
      new Option(
        '--adapter <language>',
        'what it is written in, if the extension does not say it',
      ).choices(['hubfile', 'yaml', 'json']),
    );
}
