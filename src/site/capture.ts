import type { Exchange } from '../http/exchange.ts';
import { compilePattern, matchable } from '../http/linear-regexp.ts';

/**
 * Tests a text; what the groups capture becomes `{re.NAME.N}`, or `{re.N}` without a name.
 *
 * @throws HubgateError `invalid-pattern`; the function throws an HttpError 431 for a text that is too long
 */
export function capturing(
  pattern: string,
  name: string | null,
): (text: string, at: Exchange) => boolean {
  const compiled = compilePattern(pattern);
  const prefix = name === null ? 're' : `re.${name}`;
  return (text, { variables }) => {
    const groups = compiled.match(matchable(text));
    if (groups === null) return false;
    for (const [index, group] of groups.entries()) variables.set(`${prefix}.${index}`, group);
    return true;
  };
}
