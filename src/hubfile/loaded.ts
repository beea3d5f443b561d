import type { Config } from '../config/config.ts';
import {
  type Place,
  placeText,
  type Problem,
  type SourceLocation,
  type UnplacedProblem,
} from '../config/problem.ts';
import { locate, type Origins, placeOf, type Problems } from './place.ts';

/** A configuration, with information about the text that it was read from. */
export interface LoadedConfig {
  readonly config: Config;
  readonly warnings: readonly Problem[];
  /** Absolute paths of the files that were read. */
  readonly files: readonly string[];
  /** Words from variables of the environment (`{$VAR}`), which must not be printed. */
  readonly fromEnvironment: readonly string[];
  /** Absolute patterns of imports; a new file that matches one changes the configuration. */
  readonly globs: readonly string[];
  /** The place at which an object or list of the configuration, or a field of it, was written. */
  placeOf(about: object, field?: string): Place | undefined;
  /** A problem with its place and excerpt, as far as they are known. */
  problemAt(about: object | null, problem: UnplacedProblem, where?: SourceLocation): Problem;
}

/** Everything that could be read of a text, with or without errors. */
export interface ReadConfig extends LoadedConfig {
  /** Errors and warnings, in the order in which they were found. */
  readonly problems: readonly Problem[];
  /**
   * The configuration without the sites that have errors: further problems of those may only be due to the
   * parts that could not be read. Without any site if there are errors outside of sites, and with the default
   * options if there are errors in the options.
   */
  readonly sound: Config;
  /** All sites and options that are complete, with or without errors: checks of single parts can use it. */
  readonly readable: Config;
}

/** Freezes the result and keeps the information about its text. */
export function loaded(
  config: Config,
  problems: Problems,
  origins: Origins,
  about: Pick<ReadConfig, 'files' | 'globs' | 'fromEnvironment' | 'sound' | 'readable'>,
): ReadConfig {
  origins.inherit(config);
  deepFreeze([config, about.sound, about.readable]);
  return {
    ...about,
    config,
    problems: problems.all,
    warnings: problems.warnings,
    placeOf: (part, field) => {
      const span = origins.find(part, field);
      return span === undefined ? undefined : placeOf(span);
    },
    problemAt: (part, problem, where = {}) => problemAt(origins, part, problem, where),
  };
}

function problemAt(
  origins: Origins,
  about: object | null,
  problem: UnplacedProblem,
  { field, other }: SourceLocation,
): Problem {
  const otherSpan = other === undefined ? undefined : origins.find(other);
  const otherPlace = otherSpan === undefined ? undefined : placeOf(otherSpan);
  const also = otherPlace === undefined ? '' : `; the other is at ${placeText(otherPlace)}`;
  const complete = { ...problem, message: problem.message + also };
  const span = about === null ? undefined : origins.find(about, field);
  return span === undefined ? complete : locate(complete, span);
}

function deepFreeze(part: unknown): void {
  if (typeof part !== 'object' || part === null || Object.isFrozen(part)) return;
  Object.freeze(part);
  for (const value of Object.values(part)) deepFreeze(value);
}
