/** Which of several files that are there is meant. */
export const TRY_POLICIES = [
  'first_exist',
  'smallest_size',
  'largest_size',
  'most_recently_modified',
] as const;

export type TryPolicy = (typeof TRY_POLICIES)[number];

/** What may be tried: a path without patterns, or `=404` as the last. */
export function isTriedFile(file: string): boolean {
  if (file.startsWith('=')) return fallbackStatus(file) !== null;
  return file !== '' && !/[*[\]\\\0]/.test(file);
}

/** The status of `=404`; null for a file. */
export function fallbackStatus(file: string): number | null {
  return /^=[45]\d\d$/.test(file) ? Number(file.slice(1)) : null;
}

/** A status stands only at the end, where the first that exists is wanted; null: it is all right. */
export function misplacedStatus(files: readonly string[], policy: TryPolicy): string | null {
  const at = files.findIndex((file) => fallbackStatus(file) !== null);
  if (at === -1) return null;
  if (at < files.length - 1) return `${files[at]} ends the search, so it must be the last`;
  return policy === 'first_exist' ? null : `${files[at]} goes only with the policy first_exist`;
}
