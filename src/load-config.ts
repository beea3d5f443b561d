// Two configurations are the same when their fingerprints are: all values, and the content of the
// files that the running gateway reads.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { checkConfig, checkServed } from './config/check.ts';
import { filesRead } from './config/routes.ts';
import { directiveTable, registry } from './directives/registry.ts';
import type { Config } from './config/config.ts';
import { encodeConfig } from './config/serialize.ts';
import { ConfigError, hasError, type Problem, type Report, warningsOf } from './config/problem.ts';
import { type ResolvedConfig, resolvePlaceholders } from './config/resolve.ts';
import type { HubfileIo } from './hubfile/expand.ts';
import { type Language, languageOf, load, read } from './hubfile/load.ts';
import type { ReadConfig } from './hubfile/loaded.ts';
import { checkHistories } from './runtime/check-files.ts';
import { checkNamed, checkParts } from './runtime/check-parts.ts';
import { checkPlaceholders } from './runtime/check-placeholders.ts';
import { checkRoutes } from './runtime/check-routes.ts';

/** A configuration that is ready to be built. */
export interface ReadyConfig {
  /** As it was written, with its placeholders: what `adapt` prints. */
  readonly written: Config;
  /** What of it came from `{$VARIABLE}`: not to be printed. */
  readonly fromEnvironment: readonly string[];
  /** With `{env.X}` and `{file.X}` replaced. */
  readonly config: Config;
  readonly warnings: readonly Problem[];
  /** Absolute paths of all that was read, and of what the running gateway reads: certificates. */
  readonly files: readonly string[];
  /** Absolute patterns of imports. */
  readonly globs: readonly string[];
}

/**
 * Reads a configuration and checks all that can be checked without opening anything but files that
 * it names.
 *
 * @param file as it is to be named in messages; what it imports is relative to it
 * @param language what it is written in; else the extension of the file decides
 * @throws ConfigError with every problem found, each at its place
 */
export function loadConfig(
  file: string,
  io: HubfileIo,
  language: Language = languageOf(file),
): ReadyConfig {
  const loaded = read(file, io, directiveTable, language);
  const problems: Problem[] = [...loaded.problems];
  const complete = !hasError(problems);
  const resolved = resolveAt(file, loaded.readable, io, (...found) =>
    problems.push(loaded.problemAt(...found)),
  );
  // As it is written: what an environment variable brings in may be a secret.
  for (const site of loaded.readable.sites) {
    const report: Report = (...found) => problems.push(loaded.problemAt(...found));
    checkPlaceholders(site, report);
    checkRoutes(site, io.machine, report);
  }
  checkNamed(resolved.config, (path) => io.read(path), resolved.report);
  // What a mistake does not touch is checked all the same: one look at the file, all its mistakes.
  const sound = soundPart(loaded, resolved);
  checkConfig(sound, registry, resolved.report);
  if (complete) checkServed(sound, resolved.report);
  checkParts(sound, complete, resolved.report);
  if (complete) checkHistories(sound, resolve(file), resolved.report);
  if (hasError(problems)) throw new ConfigError(problems);
  const { options } = resolved.config;
  // The first is the configuration itself, by which its project is known.
  const hiddenFiles = unique([file, ...loaded.files, ...resolved.files, ...options.hiddenFiles]);
  return {
    written: loaded.config,
    fromEnvironment: loaded.fromEnvironment,
    config: { ...resolved.config, options: { ...options, hiddenFiles } },
    warnings: warningsOf(problems),
    files: unique([...loaded.files, ...resolved.files, ...filesNamedIn(resolved.config)]),
    globs: loaded.globs,
  };
}

function soundPart({ sound, readable }: ReadConfig, resolved: ResolvedConfig): Config {
  const { options, sites } = resolved.config;
  const soundSites = new Set<object>(sound.sites);
  return {
    options: sound.options === readable.options ? options : sound.options,
    sites: sites.filter((site) => soundSites.has(resolved.originOf(site))),
  };
}

/**
 * Reads a configuration for what it names, where nothing has to run: keys may be missing, as they
 * are in the shell of an operator, and nothing is checked beyond the language.
 *
 * @throws ConfigError where the text itself is wrong
 */
export function loadUnchecked(file: string, io: HubfileIo, language = languageOf(file)): Config {
  return resolveAt(file, load(file, io, directiveTable, language).config, io, () => {}).config;
}

function resolveAt(file: string, config: Config, io: HubfileIo, report: Report) {
  return resolvePlaceholders(config, {
    env: io.env,
    readFile: (name) => io.read(name),
    directory: dirname(resolve(file)),
    report,
  });
}

/**
 * The same for two configurations that run the same: equal in every value, and in the content of
 * every file that the running gateway reads.
 */
export function fingerprint(config: Config): string {
  const hash = createHash('sha256');
  hash.update(JSON.stringify(encodeConfig(config, registry, { showSecrets: true, brief: false })));
  for (const name of filesNamedIn(config)) hash.update(contentDigest(name));
  return hash.digest('hex');
}

function contentDigest(file: string): string {
  try {
    return createHash('sha256').update(readFileSync(file)).digest('hex');
  } catch {
    // Whoever needs the file says what is wrong with it; here it only differs from one that is there.
    return 'unreadable';
  }
}

/** Certificates and keys: the configuration names them, and its content does not show a change. */
function filesNamedIn({ options, sites }: Config): string[] {
  const named = sites.flatMap(({ tls, routes, errorRoutes }) => [
    ...(tls.source.kind === 'files' ? [tls.source.certFile, tls.source.keyFile] : []),
    ...(tls.source.kind === 'issuers'
      ? tls.source.issuers.map((each) => (each.kind === 'acme' ? each.rootFile : null))
      : []),
    tls.clientAuth?.trustPoolFile ?? null,
    ...filesRead([...routes, ...errorRoutes], registry).map(({ path }) => path),
  ]);
  return [options.acme.rootFile, ...named].filter((name) => name !== null);
}

function unique(names: readonly string[]): string[] {
  return [...new Set(names.map((name) => resolve(name)))];
}
