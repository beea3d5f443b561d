import { readFileSync } from 'node:fs';

/** The version in package.json, which lies two directories above, in src/ as in dist/. */
export function packageVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version }: { version?: unknown } = JSON.parse(text);
  return String(version);
}
