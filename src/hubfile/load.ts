import { ConfigError, hasError } from '../config/problem.ts';
import { adapt } from './adapt.ts';
import type { DirectiveTable } from './directive-table.ts';
import { expand, type HubfileIo } from './expand.ts';
import { readData } from './read-data.ts';
import { loaded, type LoadedConfig, type ReadConfig } from './loaded.ts';
import { Origins, Problems } from './place.ts';

export type { LoadedConfig } from './loaded.ts';

/** The language of a configuration. */
export type Language = 'hubfile' | 'yaml' | 'json';

/** The language of a file, by its extension. */
export function languageOf(file: string): Language {
  if (/\.ya?ml$/i.test(file)) return 'yaml';
  return /\.json$/i.test(file) ? 'json' : 'hubfile';
}

/**
 * Reads as much of a configuration as possible. `{env.X}` and `{file.X}` are not resolved yet, and checks
 * across fields are not made (`resolvePlaceholders`, `checkConfig`).
 */
export function read(
  file: string,
  io: HubfileIo,
  table: DirectiveTable,
  language = languageOf(file),
): ReadConfig {
  return language === 'hubfile'
    ? readHubfile(file, io, table)
    : readData(file, io, language, table.registry);
}

/**
 * Calls {@link read} and throws if there is an error.
 * @throws {ConfigError} `invalid-config`, with every problem of the file, if it has an error.
 */
export function load(
  file: string,
  io: HubfileIo,
  table: DirectiveTable,
  language = languageOf(file),
): LoadedConfig {
  const result = read(file, io, table, language);
  if (hasError(result.problems)) throw new ConfigError(result.problems);
  return result;
}

function readHubfile(file: string, io: HubfileIo, table: DirectiveTable): ReadConfig {
  const problems = new Problems();
  const origins = new Origins();
  const expanded = expand(file, io, problems);
  const { files, globs, fromEnvironment } = expanded;
  const { config, sound } = adapt(expanded, problems, origins, table);
  const about = { files, globs, fromEnvironment, sound, readable: config };
  return loaded(config, problems, origins, about);
}
