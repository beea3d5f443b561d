import type { LogReader } from './log-reader.ts';
import { EARLIEST, isPossibleId } from './update.ts';

/** Whether a cursor is none, or one that no log can know: there is no such id. */
export function knowsNothing(lastEventId: string | null): boolean {
  return lastEventId === null || lastEventId === '' || !isPossibleId(lastEventId);
}

/**
 * The position after which to replay; null when the log does not know the cursor.
 *
 * @throws HubgateError `transport-closed` or `transport-failed`
 */
export async function locate(
  reader: LogReader,
  lastEventId: string | null,
): Promise<number | null> {
  if (lastEventId === null || knowsNothing(lastEventId)) return null;
  const found = await reader.find(lastEventId);
  // Asked for all the same: a log that cannot be read must not pass for one that is empty.
  return lastEventId === EARLIEST ? 0 : found;
}

/** Where the replay begins: what was asked for when the log knows it, else `earliest`. */
export function cursorAnswer(asked: string | null, found: number | null): string | null {
  if (asked === null) return null;
  return found === null ? EARLIEST : asked;
}
