import { resolve } from 'node:path';
import type { Config } from './config/config.ts';
import { readGiven } from './config/program-data.ts';
import { object, type Shape, withDefault } from './config/shape.ts';
import { name, text as anyText } from './config/shape-values.ts';
import { HubgateError } from './kernel/error.ts';
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
 * @throws ConfigError with every problem of the text, each with its place; HubgateError `invalid-argument`
 * @example
 * const config = parseHubfile('localhost {\n\trespond "hello"\n}\n');
 */
export function parseHubfile(text: string, options: ParseOptions = {}): Config {
  if (typeof text !== 'string') {
    throw new HubgateError('invalid-argument', 'The first argument of parseHubfile is a text');
  }
  const { file, env } = readGiven(options, parseOptions, 'invalid-argument');
  const disk = diskIo(env ?? process.env);
  const io = {
    ...disk,
    read: (path: string) => (resolve(path) === resolve(file) ? Buffer.from(text) : disk.read(path)),
  };
  return loadConfig(file, io).config;
}

/** The variables of an environment, whose values are texts. */
const environment: Shape<ParseOptions['env']> = {
  ...object<Record<string, string>>({}),
  read(node, reading) {
    const names = node.value instanceof Map ? [...node.value.keys()] : [];
    const value = anyText('the value of a variable');
    return object<Record<string, string>>(
      Object.fromEntries(names.map((each) => [each, value])),
    ).read(node, reading);
  },
};

const parseOptions = object({
  file: withDefault(name('the name of a file'), 'Hubfile'),
  env: withDefault(environment, undefined),
});
