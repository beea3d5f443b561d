import { codeOf, messageOf } from '../kernel/error.ts';

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'there is no such file',
  EISDIR: 'it is a directory',
  EACCES: 'reading it is not allowed',
};

/** Why a file could not be read, without the absolute path that the system's message repeats. */
export function whyUnreadable(thrown: unknown): string {
  const code = codeOf(thrown);
  if (code === undefined) return messageOf(thrown);
  return REASONS[code] ?? code;
}
