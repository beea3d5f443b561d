import type { CompileMatcher, Predicate } from '../../site/predicate.ts';
import type { HidesFile } from '../../site/site-files.ts';
import { tryFiles } from '../../site/tried-files.ts';
import type { FileCondition } from './data.ts';

/** Which file it is stays in `{file_match.relative}` and its like. */
export function file(
  condition: FileCondition,
  _compileMatcher: CompileMatcher,
  hidesFile: HidesFile,
): Predicate {
  return async (exchange) => (await tryFiles(exchange, condition, hidesFile)) !== null;
}
