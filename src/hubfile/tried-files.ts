import { isTriedFile, misplacedStatus, TRY_POLICIES, type TryPolicy } from '../config/try-files.ts';
import type { Cursor } from './cursor.ts';
import type { Word } from './parser.ts';
import { badValue, oneOf } from './values.ts';

/** The files that are to be tried, one of the words or several. */
export function triedFiles(cursor: Cursor, words: readonly Word[]): readonly string[] {
  return words.map((word) =>
    isTriedFile(word.text)
      ? word.text
      : badValue(cursor, word, 'a path without *, [ and ], or a status such as =404'),
  );
}

export function tryPolicy(cursor: Cursor): TryPolicy {
  return oneOf(cursor, TRY_POLICIES);
}

/** Complains about a status that has no effect where it stands. */
export function checkTried(cursor: Cursor, files: readonly string[], policy: TryPolicy): void {
  const message = misplacedStatus(files, policy);
  if (message !== null) cursor.fail(cursor.span, 'misplaced-status', message);
}
