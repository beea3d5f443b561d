import { resolve } from 'node:path';
import type { Config } from './config/config.ts';
import { diskIo } from './hubfile/disk.ts';
import { loadConfig } from './load-config.ts';

export interface ParseOptions {
  /** Name of the text in messages; its imports are relative to it. @default "Hubfile" */
  readonly file?: string;
  /** The values of `{$X}` and `{env.X}`. @default the environment of the process */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/**
 * Creates a configuration from the text of a Hubfile.
 *
 * @throws ConfigError with every problem of the text, each with its place
 * @example
 * const config = parseHubfile('localhost {\n\trespond "hello"\n}\n');
 */
export function parseHubfile(text: string, options: ParseOptions = {}): Config {
  const { file = 'Hubfile' } = options;
  const disk = diskIo(options.env ?? process.env);
  const io = {
    ...disk,
    read: (path: string) => (resolve(path) === resolve(file) ? Buffer.from(text) : disk.read(path)),
  };
  return loadConfig(file, io).config;
}
