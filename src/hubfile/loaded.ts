import type { Config } from '../config/config.ts';
import {
  type Place,
  placeText,
  type Problem,
  type SourceLocation,
  type UnplacedProblem,
} from '../config/problem.ts';
import { locate, type Origins, placeOf } from './place.ts';
import type { Problems } from './problems.ts';

/** A configuration, and what is known of the text that it was read from. */
export interface LoadedConfig {
  readonly config: Config;
  readonly warnings: readonly Problem[];
  /** Absolute paths of the files that were read. */
  readonly files: readonly string[];
  /** Words that stood in variables of the environment (`{$VAR}`): not to be printed. */
  readonly fromEnvironment: readonly string[];
  /** Absolute patterns of imports; a new file that matches one changes the configuration. */
  readonly globs: readonly string[];
  /** Where an object or list of the configuration, or a field of it, was written. */
  placeOf(about: object, field?: string): Place | undefined;
  /** A problem with its place and excerpt, as far as they are known. */
  problemAt(about: object | null, problem: UnplacedProblem, where?: SourceLocation): Problem;
}

/** What could be read of a text, right or wrong. */
export interface ReadConfig extends LoadedConfig {
  /** Errors and warnings, in the order in which they were found. */
  readonly problems: readonly Problem[];
  /**
   * The configuration without the sites that have errors of their own: what else seems wrong with
   * those may only be what could not be read. Without any site where errors are not of a site, and
   * with the default options where errors are in the options.
   */
  readonly sound: Config;
  /** All of which the parts are there, sound or not: what looks at one part alone may look at it. */
  readonly readable: Config;
}

/** Freezes what was read and keeps what is known of its text. */
export function loaded(
  config: Config,
  problems: Problems,
  origins: Origins,
  {
    files,
    globs,
    fromEnvironment,
    sound,
    readable,
  }: Pick<ReadConfig, 'files' | 'globs' | 'fromEnvironment' | 'sound' | 'readable'>,
): ReadConfig {
  origins.inherit(config);
  return {
    config: deepFreeze(config),
    sound: deepFreeze(sound),
    readable: deepFreeze(readable),
    problems: problems.all,
    warnings: problems.warnings,
    files,
    globs,
    fromEnvironment,
    placeOf: (about, field) => {
      const span = origins.find(about, field);
      return span === undefined ? undefined : placeOf(span);
    },
    problemAt: (about, problem, where = {}) => problemAt(origins, about, problem, where),
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
  const complete =
    otherPlace === undefined
      ? problem
      : {
          ...problem,
          message: `${problem.message}; the other is at ${placeText(otherPlace)}`,
        };
  const span = about === null ? undefined : origins.find(about, field);
  return span === undefined ? complete : locate(complete, span);
}

function deepFreeze<Part>(part: Part): Part {
  if (typeof part !== 'object' || part === null || Object.isFrozen(part)) return part;
  Object.freeze(part);
  for (const value of Object.values(part)) deepFreeze(value);
  return part;
}
