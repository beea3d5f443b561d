import type { RootDatabase } from 'lmdb';
import { HubgateError, messageOf } from '../../kernel/error.ts';
import { processIsEnding, uncut } from '../../kernel/process-end.ts';

/**
 * Runs `change` in a write transaction, and takes all of it back when it throws or the commit
 * fails. Resolves when it is committed; on disk it is when `root.flushed` has resolved. The process does
 * not end before both.
 *
 * @throws what `change` throws; HubgateError `commit-failed` with what the system said,
 *   `transport-closed` at the end of the process
 */
export async function write<Result>(root: RootDatabase, change: () => Result): Promise<Result> {
  if (processIsEnding()) throw new HubgateError('transport-closed', 'The process ends');
  // A child transaction: only that is taken back by lmdb-js when its callback throws.
  const written = root.childTransaction(() => {
    // It makes a second promise for the same commit, which nobody else would catch.
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

/** lmdb-js says why a commit failed in a promise that rejects a little later. */
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
