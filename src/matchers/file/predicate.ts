import type { Predicate } from '../../site/predicate.ts';
import { tryFiles } from '../../site/tried-files.ts';
import type { FileCondition } from './data.ts';

/** Which file it is stays in `{file_match.relative}` and its like. */
export function file(condition: FileCondition): Predicate {
  return async (exchange) => (await tryFiles(exchange, condition)) !== null;
}
