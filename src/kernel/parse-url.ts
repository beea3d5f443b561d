/**
 * The URL that a text says, resolved against `base`; null when it is none. Not `URL.canParse`:
 * after some thousand calls Node 20 denies good URLs whose host is not ASCII.
 */
export function parseUrl(text: string, base?: string): URL | null {
  try {
    return new URL(text, base);
  } catch {
    return null;
  }
}
