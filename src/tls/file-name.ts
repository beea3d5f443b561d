import { createHash } from 'node:crypto';

/** What is safe as a file name everywhere; a hash where names are many, long or strange. */
export function fileName(names: readonly string[]): string {
  const [name = ''] = names;
  const plain = name.replace(/^\*/, 'wildcard').replace(/:(?=\d+$)/, '-');
  if (names.length === 1 && /^[a-z0-9_][a-z0-9._-]{0,99}$/.test(plain)) return plain;
  return createHash('sha256').update(JSON.stringify(names)).digest('hex').slice(0, 32);
}
