import { adapt } from './adapt.ts';
import { type HubfileIo, expand } from './expand.ts';
import { loadData } from './load-data.ts';
import { loaded, type LoadedConfig } from './loaded.ts';
import { Origins } from './origins.ts';
import { Problems } from './problems.ts';

export type { LoadedConfig } from './loaded.ts';

/** What a configuration is written in. */
export type Language = 'hubfile' | 'yaml' | 'json';

/** What a file is written in, by its extension. */
export function languageOf(file: string): Language {
  if (/\.ya?ml$/i.test(file)) return 'yaml';
  return /\.json$/i.test(file) ? 'json' : 'hubfile';
}

/**
 * Reads a configuration; `{env.X}` and `{file.X}` are still in it, and checks across fields are not
 * made (`resolvePlaceholders`, `checkConfig`).
 * @throws {ConfigError} `invalid-config`, with every problem of the file, if it has an error.
 */
export function load(file: string, io: HubfileIo, language = languageOf(file)): LoadedConfig {
  return language === 'hubfile' ? loadHubfile(file, io) : loadData(file, io, language);
}

/** {@link load} for a Hubfile. */
export function loadHubfile(file: string, io: HubfileIo): LoadedConfig {
  const problems = new Problems();
  const origins = new Origins();
  const { lines, files, globs } = expand(file, io, problems);
  const config = adapt(lines, problems, origins);
  problems.throwIfAny();
  return loaded(config, problems, origins, { files, globs });
}
