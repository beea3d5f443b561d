import type { HidesFile } from '../../site/site-files.ts';
import { resolve, sep } from 'node:path';
import { compileGlob } from '../../kernel/glob.ts';
import type { Exchange, Expand } from '../../http/exchange.ts';

/** Whether a file or directory with these names, from the root on, is hidden. */
export type IsHidden = (names: readonly string[]) => boolean;

/** A file or directory below the root, with what is hidden there. */
export interface FilePlace {
  readonly root: string;
  readonly names: readonly string[];
  readonly isHidden: IsHidden;
  readonly hidesFile: HidesFile;
}

/** The directory of the files: the configured path, and the path after its links are resolved. */
interface Root {
  readonly directory: string;
  readonly real: string;
}

interface Pattern {
  readonly text: string;
  readonly matches: (text: string) => boolean;
}

interface Patterns {
  /** Patterns for a single name, anywhere below the root. */
  readonly ofNames: readonly Pattern[];
  /** Absolute patterns: for a file, or for a directory with everything in it. */
  readonly ofPaths: readonly Pattern[];
}

/** `hide`, with Caddy's rules: an entry with a slash is a path, relative to the working directory. */
export function hiddenBy(
  patterns: readonly string[],
  expand: Expand,
): (exchange: Exchange, root: Root) => IsHidden {
  const known = patterns.some((pattern) => pattern.includes('{')) ? null : patternsOf(patterns);
  return (exchange, { directory, real }) => {
    const { ofNames, ofPaths } =
      known ?? patternsOf(patterns.map((pattern) => expand(pattern, exchange, undefined, literal)));
    const bases = [...new Set([resolve(directory), real])];
    return (names) => {
      if (names.some((name) => ofNames.some(({ matches }) => matches(name)))) return true;
      if (ofPaths.length === 0) return false;
      return bases.some((base) => isBelowOne([base, ...names].join(sep), ofPaths));
    };
  };
}

function patternsOf(patterns: readonly string[]): Patterns {
  const isPath = (pattern: string): boolean => pattern.includes(sep);
  return {
    ofNames: patterns.filter((pattern) => !isPath(pattern)).map(compiled),
    ofPaths: patterns.filter(isPath).map((pattern) => compiled(resolve(pattern))),
  };
}

/** An entry that is not a valid glob is a literal name or path. */
function compiled(text: string): Pattern {
  try {
    const like = compileGlob([{ text, isLiteral: false }]);
    return { text, matches: (name) => name === text || like(name) };
  } catch {
    return { text, matches: (name) => name === text };
  }
}

/** A wildcard never matches a slash, so only one of the directories above a path can match a pattern. */
function isBelowOne(path: string, patterns: readonly Pattern[]): boolean {
  const names = path.split(sep);
  return patterns.some(({ text, matches }) => {
    const depth = text.split(sep).length;
    return depth <= names.length && matches(names.slice(0, depth).join(sep));
  });
}

/** The value of a placeholder contains no wildcards. */
function literal(value: string): string {
  return value.replace(/[*?[\\]/g, '\\$&');
}
