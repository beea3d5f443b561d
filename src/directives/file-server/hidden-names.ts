import { resolve, sep } from 'node:path';
import { compileGlob } from '../../kernel/glob.ts';
import type { Exchange, Expand } from '../../http/exchange.ts';

/** Whether a file or directory of these names, from the root on, is not to be seen. */
export type IsHidden = (names: readonly string[]) => boolean;

/** The directory of the files, as it is configured and as its links lead. */
interface Root {
  readonly directory: string;
  readonly real: string;
}

interface Pattern {
  readonly text: string;
  readonly matches: (text: string) => boolean;
}

interface Patterns {
  /** Of one name, wherever it stands below the root. */
  readonly ofNames: readonly Pattern[];
  /** Absolute: of a file, or of a directory with all that is in it. */
  readonly ofPaths: readonly Pattern[];
}

/** `hide`, as Caddy reads it: what has a slash is a path, which is relative to the working directory. */
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

/** One that is not a glob is a name or path as it is written. */
function compiled(text: string): Pattern {
  try {
    const like = compileGlob([{ text, isLiteral: false }]);
    return { text, matches: (name) => name === text || like(name) };
  } catch {
    return { text, matches: (name) => name === text };
  }
}

/** No wildcard is a slash, so of the directories above a path only one can be like a pattern. */
function isBelowOne(path: string, patterns: readonly Pattern[]): boolean {
  const names = path.split(sep);
  return patterns.some(({ text, matches }) => {
    const depth = text.split(sep).length;
    return depth <= names.length && matches(names.slice(0, depth).join(sep));
  });
}

/** What a placeholder brings in is not a wildcard. */
function literal(value: string): string {
  return value.replace(/[*?[\\]/g, '\\$&');
}
