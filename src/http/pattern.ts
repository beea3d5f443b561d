import { RE2JS, RE2JSSyntaxException } from 're2js';
import { HubgateError } from '../kernel/error.ts';

/** A regular expression that takes linear time whatever it is matched against. */
export interface Pattern {
  /** The groups of the first match, the whole match first, unmatched ones empty; null for none. */
  match(text: string): readonly string[] | null;
  /** Replaces every match; `$1` and `${name}` in `replacement` stand for groups. */
  replace(text: string, replacement: string): string;
}

/**
 * Compiles RE2 syntax. Configuration chooses the pattern, clients choose the text: V8's engine
 * would let a client block the process.
 *
 * @throws HubgateError `invalid-pattern`
 */
export function compilePattern(source: string): Pattern {
  const regex = compile(source);
  return {
    match(text) {
      const matcher = regex.matcher(text);
      if (!matcher.find()) return null;
      const groups: string[] = [];
      for (let i = 0; i <= matcher.groupCount(); i += 1) groups.push(matcher.group(i) ?? '');
      return groups;
    },
    replace: (text, replacement) => regex.matcher(text).replaceAll(replacement, true),
  };
}

function compile(source: string): RE2JS {
  try {
    return RE2JS.compile(source);
  } catch (error) {
    const why = error instanceof RE2JSSyntaxException ? error.message : 'not RE2 syntax';
    throw new HubgateError('invalid-pattern', `Invalid regular expression: ${why}`, {
      cause: error,
    });
  }
}
