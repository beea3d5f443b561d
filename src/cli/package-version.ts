import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The version in this package's own package.json. */
export function packageVersion(): string {
  const text = readFileSync(fileURLToPath(import.meta.resolve('hubgate/package.json')), 'utf8');
  const { version }: { version?: unknown } = JSON.parse(text);
  return String(version);
}
