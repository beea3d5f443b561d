import type { RootDatabase } from 'lmdb';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { processIsEnding, uncut } from '../../kernel/process-end.ts';

/**
 * Runs `change` in a write transaction, and rolls it back if it throws or the commit fails. Resolves when it
 * is committed; it is on disk when `root.flushed` has resolved. The process does not end before both.
 *
 * @throws any error of `change`; HubgateError `commit-failed` with the system's message, `transport-closed`
 * at the end of the process
 */
export async function write<Result>(root: RootDatabase, change: () => Result): Promise<Result> {
  if (processIsEnding()) throw new HubgateError('transport-closed', 'The process is ending');
  // A child transaction, because lmdb-js rolls back only such a one when its callback throws.
  const written = root.childTransaction(() => {
    // This creates a second promise for the same commit, which nothing else would catch.
    root.committed.then(ignore, ignore);
    return change();
  });
  void uncut(async () => {
    await written;
    await root.flushed;
  }).catch(ignore);
  try {
    return await written;
  } catch (error) {
    throw await reasonOf(error);
  }
}

/** lmdb-js reports the reason of a failed commit in a promise that rejects a little later. */
async function reasonOf(error: unknown): Promise<unknown> {
  if (!(error instanceof Error) || !('commitError' in error)) return error;
  try {
    await error.commitError;
    return error;
  } catch (reason) {
    return new HubgateError('commit-failed', messageOf(reason), { cause: reason });
  }
}

function ignore(): void {}
