import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import type { TestContext } from 'node:test';

/** Path of an installed program; without it the test is skipped aloud, and in CI fails. */
export function programPath(test: TestContext, name: string, debianPackage = name): string | null {
  // Some of them are for administrators, whose directory is not on everybody's path.
  const directories = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin'];
  const found = directories.map((directory) => join(directory, name)).find(isExecutable);
  if (found !== undefined) return found;
  isMissed(test, `${name} is not installed (apt-get install ${debianPackage})`);
  return null;
}

/** Skips the test aloud for want of a program; in CI it fails. */
export function isMissed(test: Pick<TestContext, 'skip'>, message: string): void {
  if (process.env['CI'] === 'true') throw new Error(message);
  test.skip(message);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
