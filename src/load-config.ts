// Two configurations are equal if their fingerprints are. A fingerprint includes all values, and the content
// of the files that the running gateway reads.

import { createHash, hash } from 'node:crypto';
import { basename, dirname, join, resolve } from 'node:path';
import { checkConfig, checkServed } from './config/check.ts';
import { parsePostgresUrl } from './config/postgres-url.ts';
import { filesRead } from './config/routes.ts';
import { allHubs } from './config/sites.ts';
import { directiveTable, registry } from './directives/registry.ts';
import type { Config, GlobalOptions } from './config/config.ts';
import { encodeConfig } from './config/serialize.ts';
import {
  CLOCK_FUNCTIONS,
  LOG_FUNCTIONS,
  readGiven,
  requireFunctions,
} from './config/program-data.ts';
import { byKind, object } from './config/shape.ts';
import { name } from './config/shape-values.ts';
import { configShape } from './config/shape-config.ts';
import {
  ConfigError,
  hasError,
  type Problem,
  ProblemCounts,
  type Report,
  warningsOf,
} from './config/problem.ts';
import { checkForms, type ResolvedConfig, resolvePlaceholders } from './config/resolve.ts';
import type { PurgeOrder } from './cache/response-caches.ts';
import type { HubfileIo } from './hubfile/expand.ts';
import { type Language, languageOf, load, read } from './hubfile/load.ts';
import type { LoadedConfig, ReadConfig } from './hubfile/loaded.ts';
import { withoutValues } from './kernel/secret.ts';
import { HubgateError } from './kernel/error.ts';
import { readRegularFile } from './kernel/files.ts';
import { orNull } from './kernel/parse.ts';
import { checkHistories } from './runtime/check-files.ts';
import { checkNamed, checkParts } from './runtime/check-parts.ts';
import { checkPlaceholders } from './runtime/check-placeholders.ts';
import { checkRoutes } from './runtime/check-routes.ts';
import { requireReach } from './runtime/hub-families.ts';
import { createGateway as createTrustingGateway, type Gateway } from './runtime/gateway.ts';
import type { GatewayOptions } from './runtime/resources.ts';

/** A configuration that is ready to be built. */
export interface ReadyConfig extends Pick<LoadedConfig, 'warnings' | 'fromEnvironment' | 'globs'> {
  /** As it was written, with its placeholders: the output of `adapt`. */
  readonly written: Config;
  /** With `{env.X}` and `{file.X}` replaced. */
  readonly config: Config;
  /**
   * Absolute paths of all files that were read, and of those that the running gateway reads: certificates.
   */
  readonly files: readonly string[];
}

/** Values of variables that messages show: ports, host names and paths. */
const PUBLIC = /^(?:\d+|[a-z\d-]{1,63}(?:\.[a-z\d-]{1,63})+(?::\d+)?|\.{0,2}\/.*)$/;

/**
 * Reads a configuration and performs all checks that open nothing but the files that it names.
 *
 * @param file name in messages; imports are relative to it
 * @param language of the text; by default the extension of the file decides
 * @throws ConfigError with every problem found, each with its place
 */
export function loadConfig(
  file: string,
  io: HubfileIo,
  language: Language = languageOf(file),
): ReadyConfig {
  const loaded = read(file, io, directiveTable, language);
  const problems: Problem[] = [...loaded.problems];
  const counts = new ProblemCounts();
  const values = loaded.fromEnvironment.filter((word) => !PUBLIC.test(word));
  const hide = (text: string): string => withoutValues(text, values);
  const report: Report = (about, found, where) => {
    if (!counts.keeps(found)) return;
    const hint = found.hint === undefined ? {} : { hint: hide(found.hint) };
    const hidden = { ...found, message: hide(found.message), ...hint };
    problems.push(loaded.problemAt(about, hidden, where));
  };
  const complete = !hasError(problems);
  const resolved = resolveAt(file, loaded.readable, io, report);
  checkForms(resolved, configShape(registry));
  // As it is written, because the value of an environment variable may be a secret.
  for (const site of loaded.readable.sites) {
    checkPlaceholders(site, report);
    checkRoutes(site, io.machine, report);
  }
  checkNamed(resolved.config, (path) => io.read(path), resolved.report);
  // Parts that a mistake does not affect are checked nevertheless, so that all mistakes are found at once.
  const sound = soundPart(loaded, resolved);
  checkConfig(sound, registry, resolved.report);
  if (complete) checkServed(sound, resolved.report);
  checkParts(sound, complete, (path) => io.read(path), resolved.report);
  // What is not in a file, such as `(command line)`, is of no project.
  if (complete && !/^\(.*\)$/.test(file)) checkHistories(sound, resolve(file), resolved.report);
  if (hasError(problems)) throw new ConfigError(problems);
  const { options } = resolved.config;
  // The first one is the configuration itself, which identifies its project.
  const hiddenFiles = unique([
    file,
    ...loaded.files,
    ...resolved.files,
    ...secretFilesIn(resolved.config),
    ...options.hiddenFiles,
  ]);
  return {
    written: loaded.config,
    fromEnvironment: loaded.fromEnvironment,
    config: { ...resolved.config, options: { ...options, hiddenFiles } },
    warnings: warningsOf(problems),
    files: unique([...loaded.files, ...resolved.files, ...filesNamedIn(resolved.config)]),
    globs: loaded.globs,
  };
}

/**
 * Creates a gateway from a configuration, which may be one that a program has made. Nothing is opened before `start`.
 *
 * @throws ConfigError that names each wrong member; HubgateError `invalid-argument` for the options
 * @example
 * const gateway = createGateway(config);
 * await gateway.start();
 */
export function createGateway(config: Config, options: GatewayOptions = {}): Gateway {
  requireFunctions(options, {
    log: LOG_FUNCTIONS,
    clock: CLOCK_FUNCTIONS,
    peerWorkers: ['send', 'sendHandled', 'receive'],
    openLog: [],
    playgroundSalts: [],
    metrics: [],
    random: [],
  });
  const gateway = createTrustingGateway(checked(config), options);
  const { reload, prepare, dryRun, purge, revoke, stop } = gateway;
  return Object.assign(gateway, {
    reload: async (next, wanted) => reload(checked(next), wanted),
    prepare: async (next) => prepare(checked(next)),
    dryRun: async (next) => dryRun(checked(next)),
    async purge(order, reach) {
      requireReach(reach, 'purge');
      return purge(readGiven(order, purgeOrder, 'invalid-argument'), reach);
    },
    async revoke(tokenId, reach) {
      requireReach(reach, 'revoke');
      if (typeof tokenId !== 'string' || tokenId === '') {
        throw new HubgateError('invalid-argument', 'revoke needs the jti of a token');
      }
      return revoke(tokenId, reach);
    },
    stop(signal) {
      if (signal === undefined || signal instanceof AbortSignal) return stop(signal);
      throw new HubgateError('invalid-argument', 'stop takes an AbortSignal, or nothing');
    },
  } satisfies Partial<Gateway>);
}

const purgeOrder = byKind<PurgeOrder>({
  name: object({ name: name('a URL, a topic or a tag') }),
  pattern: object({ pattern: name('a pattern') }),
  all: object({}),
});

/** A configuration that a program has made, after the checks that need no text. */
function checked(data: unknown): Config {
  const config = readGiven(data, configShape(registry));
  const problems: Problem[] = [];
  const report: Report = (_about, problem) => problems.push(problem);
  for (const site of config.sites) checkPlaceholders(site, report);
  checkNamed(config, readRegularFile, report);
  checkConfig(config, registry, report);
  checkServed(config, report);
  checkParts(config, true, readRegularFile, report);
  if (hasError(problems)) throw new ConfigError(problems);
  return config;
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
 * Reads a configuration when nothing has to run. Keys may be missing, for example in the shell of an
 * operator, and nothing is checked beyond the language.
 *
 * @throws ConfigError if the text itself is invalid
 */
export function loadUnchecked(file: string, io: HubfileIo, language = languageOf(file)): Config {
  return resolveAt(file, load(file, io, directiveTable, language).config, io, () => {}).config;
}

/** The global options as far as they can be read, even if the configuration has errors. */
export function loadOptions(file: string, io: HubfileIo, language: Language): GlobalOptions {
  const { options } = read(file, io, directiveTable, language).readable;
  return resolveAt(file, { options, sites: [] }, io, () => {}).config.options;
}

function resolveAt(file: string, config: Config, io: HubfileIo, report: Report) {
  return resolvePlaceholders(config, {
    env: io.env,
    readFile: (name) => io.read(name),
    directory: dirname(resolve(file)),
    envFileWith: (variable) => envFilesOf(file).find((name) => sets(name, variable)) ?? null,
    report,
  });
}

/** Where the variables of a configuration may be: first the file of `hubgate init`, then that of the systemd unit. */
export function envFilesOf(file: string): readonly [string, string] {
  const name = basename(file);
  const own = name === 'Hubfile' ? 'hubgate.env' : `${name.replace(/\.hubfile$/i, '')}.env`;
  return [join(dirname(file), own), join(dirname(file), 'environment')];
}

function sets(envFile: string, variable: string): boolean {
  try {
    const lines = readRegularFile(envFile).toString('utf8').split('\n');
    return lines.some((line) => {
      const assigned = line.trim().replace(/^export\s+/, '');
      return assigned.startsWith(`${variable}=`) && assigned.length > variable.length + 1;
    });
  } catch {
    return false;
  }
}

/**
 * The same for two configurations with the same effect: equal in every value, and in the content of every
 * file that the running gateway reads.
 */
export function fingerprint(config: Config): string {
  const hash = createHash('sha256');
  hash.update(JSON.stringify(encodeConfig(config, registry, { showSecrets: true, brief: false })));
  for (const name of filesNamedIn(config)) hash.update(contentDigest(name));
  return hash.digest('hex');
}

function contentDigest(file: string): string {
  // The code that needs the file reports its fault; here it only differs from an existing one.
  return orNull(() => hash('sha256', readRegularFile(file), 'hex')) ?? 'unreadable';
}

/**
 * Certificates and keys: the configuration only names them, so a change of their content is not visible in
 * it.
 */
function filesNamedIn({ options, sites }: Config): string[] {
  const named = sites.flatMap(({ tls, routes, errorRoutes }) => [
    ...(tls.source.kind === 'files' ? [tls.source.certFile, tls.source.keyFile] : []),
    ...(tls.source.kind === 'issuers'
      ? tls.source.issuers.map((each) => (each.kind === 'acme' ? each.rootFile : null))
      : []),
    ...(tls.clientAuth?.trustPoolFiles ?? []),
    ...filesRead([...routes, ...errorRoutes], registry).map(({ path }) => path),
  ]);
  return [options.acme.rootFile, ...named].filter((name) => name !== null);
}

/** Private keys and passwords. A certificate is public, so that a site may serve its file. */
function secretFilesIn({ sites }: Config): string[] {
  const databases = allHubs({ sites }).flatMap(({ hub: { transport, outbox } }) => [
    ...(transport.kind === 'postgres' ? [transport] : []),
    ...(outbox === null ? [] : [outbox]),
  ]);
  const urls = databases.flatMap((each) =>
    'listenUrl' in each ? [each.url, each.listenUrl] : each.url,
  );
  const named = [
    ...sites.map(({ tls }) => (tls.source.kind === 'files' ? tls.source.keyFile : null)),
    ...databases.map(({ passwordFile }) => passwordFile),
    ...urls.map((url) => (url === null ? null : parsePostgresUrl(url.reveal()).clientKeyFile)),
  ];
  return named.filter((name) => name !== null);
}

function unique(names: readonly string[]): string[] {
  return [...new Set(names.map((name) => resolve(name)))];
}
