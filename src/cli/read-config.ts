import { readFileSync, existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Config, GlobalOptions } from '../config/config.ts';
import { ConfigError, type Problem } from '../config/problem.ts';
import { directiveTable } from '../directives/registry.ts';
import { differencesFromCaddy, isCaddyfile } from '../hubfile/caddyfile.ts';
import { hubfileText } from '../hubfile/format.ts';
import { findFiles, servingIo, namesIn } from '../hubfile/disk.ts';
import type { HubfileIo } from '../hubfile/expand.ts';
import { type Language, languageOf, load, type LoadedConfig } from '../hubfile/load.ts';
import type { Environment } from '../hubfile/source.ts';
import { loadConfig, loadOptions, loadUnchecked, type ReadyConfig } from '../load-config.ts';
import { type ConfigSource, environmentOf } from './config-source.ts';
import { digestOf, digestOfNames } from './watch/watched-path.ts';
import type { Command } from 'commander';
import { defaultStorage } from '../tls/storage.ts';

export type { ReadyConfig } from '../load-config.ts';

const STANDARD_INPUT = '(standard input)';

/**
 * Called with each path that was looked up and a digest of what was found; the path of a directory ends with
 * `/`.
 */
export type Seen = (path: string, digest: string) => void;

/**
 * Reads the configuration for a command.
 *
 * @param seen also called if the configuration is refused
 * @throws ConfigError with every problem found, each with its position
 */
export function readConfig(
  source: ConfigSource,
  environment: Environment,
  seen: Seen = () => {},
): ReadyConfig {
  const io = ioOf(source, environment);
  const read = (path: string): Uint8Array => {
    let content: Uint8Array | null = null;
    try {
      content = io.read(path);
      return content;
    } finally {
      seen(resolve(path), digestOf(content));
    }
  };
  const glob = (pattern: string): readonly string[] => {
    for (const directory of directoriesOf(pattern)) {
      seen(`${directory}/`, digestOfNames(namesIn(directory)));
    }
    return io.glob(pattern);
  };
  const name = nameOf(source);
  const language = adapterOf(source);
  const ready = loadConfig(name, { ...io, read, glob }, language);
  if (language !== 'hubfile' || !isCaddyfile(name)) return ready;
  const text = hubfileText(io.read(name), name);
  const differences = differencesFromCaddy(text, name, io, directiveTable);
  return { ...ready, warnings: [...ready.warnings, ...differences] };
}

/** The same for commands that only need the contents: keys may be missing, and nothing is checked. */
export function readUnchecked(source: ConfigSource, environment: Environment): Config {
  return loadUnchecked(nameOf(source), ioOf(source, environment), adapterOf(source));
}

/** The same without looking beyond the text: placeholders stay, and keys may be missing. */
export function readWritten(source: ConfigSource, environment: Environment): LoadedConfig {
  return load(nameOf(source), ioOf(source, environment), directiveTable, adapterOf(source));
}

/**
 * Reads a configuration from its text.
 *
 * @param file name in messages; imports and `{file.…}` are relative to it
 */
export function readText(
  text: Uint8Array,
  file: string,
  language: Language,
  environment: Environment,
): ReadyConfig {
  return loadConfig(
    file,
    withText(servingIo(environment), file, () => text),
    language,
  );
}

/** All errors and warnings for a Hubfile, from its text. */
export function problemsIn(
  text: string,
  file: string,
  environment: Environment,
): readonly Problem[] {
  try {
    return readText(Buffer.from(text), file, 'hubfile', environment).warnings;
  } catch (thrown) {
    if (thrown instanceof ConfigError) return thrown.problems;
    throw thrown;
  }
}

/** The global options as far as they can be read, even if the configuration has errors. */
export function readOptions(
  text: Uint8Array,
  source: ConfigSource,
  environment: Environment,
): GlobalOptions {
  const file = nameOf(source);
  const io = withText(servingIo(environment), file, () => text);
  return loadOptions(file, io, adapterOf(source));
}

/** The same configuration, of which no site serves these files either. */
export function alsoHiding(ready: ReadyConfig, files: readonly string[]): ReadyConfig {
  const { config } = ready;
  const hiddenFiles = [...new Set([...config.options.hiddenFiles, ...files])];
  return { ...ready, config: { ...config, options: { ...config.options, hiddenFiles } } };
}

/** The language of a command's configuration. */
export function adapterOf({ config, adapter }: ConfigSource): Language {
  return adapter ?? languageOf(config);
}

/** The files, and the directories (with `/` at the end), whose changes would change the configuration. */
export function watchedPaths({ files, globs }: ReadyConfig): readonly string[] {
  const directories = new Set(globs.flatMap(directoriesOf));
  return [...files, ...[...directories].map((directory) => `${directory}/`)];
}

/** The directories in which a new file or directory could match a pattern. */
function directoriesOf(glob: string): readonly string[] {
  const directory = dirname(glob);
  if (!/[*?]/.test(directory)) return [directory];
  return [...directoriesOf(directory), ...findFiles(directory)];
}

function nameOf({ config }: ConfigSource): string {
  return config === '-' ? STANDARD_INPUT : config;
}

function ioOf({ config }: ConfigSource, environment: Environment): HubfileIo {
  const disk = servingIo(environment);
  return config === '-' ? withText(disk, STANDARD_INPUT, () => readFileSync(0)) : disk;
}

/** File access in which one file has different content. */
function withText(disk: HubfileIo, file: string, text: () => Uint8Array): HubfileIo {
  return {
    ...disk,
    read: (path) => (resolve(path) === resolve(file) ? text() : disk.read(path)),
  };
}

/**
 * The configuration for a command that can also run without one; null if none is given and none is in the
 * current directory.
 */
export function configIfAny(source: ConfigSource, command: Command): Config | null {
  const named = command.getOptionValueSource('config') !== 'default';
  return named || existsSync(source.config) ? readUnchecked(source, environmentOf(source)) : null;
}

/** Directory with certificates and keys, absolute. */
export function storageOf(config: Config | null): string {
  return resolve(config?.options.storage ?? defaultStorage());
}
