import type { JsonValue } from '../hub/grants.ts';

export type JsonObject = { readonly [name: string]: JsonValue };

/** Deepest nesting of arrays and objects; code that later walks the value is recursive. */
const MAX_DEPTH = 64;

/**
 * Parses JSON that has only one meaning: valid UTF-8, no duplicate member at any depth, no number beyond a
 * double, nested at most 64 deep. If two readers could read a token differently, that is an attack.
 *
 * @returns undefined for anything else
 */
export function parseStrictJson(bytes: Uint8Array): JsonValue | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    // JSON.parse returns JSON.
    const value = JSON.parse(text) as JsonValue;
    return isUnambiguous(text) ? value : undefined;
  } catch {
    return undefined;
  }
}

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const STRUCTURE = /"(?:[^"\\]|\\.)*"|[{}[\],:]|-?\d[^\s,\]}]*/g;

/** Scans well-formed JSON. */
function isUnambiguous(text: string): boolean {
  /** Names of each open object; null for an array. */
  const open: (Set<string> | null)[] = [];
  let previous = '';
  for (const [token] of text.matchAll(STRUCTURE)) {
    if (token === '{' || token === '[') {
      if (open.push(token === '{' ? new Set() : null) > MAX_DEPTH) return false;
    } else if (token === '}' || token === ']') {
      open.pop();
    } else if (token === ':') {
      const names = open.at(-1);
      // A string before a colon is a name. Escapes are decoded, so that two spellings count as the same name.
      const name = previous.includes('\\') ? String(JSON.parse(previous)) : previous.slice(1, -1);
      if (names?.has(name)) return false;
      names?.add(name);
    } else if (!token.startsWith('"') && token !== ',' && !Number.isFinite(Number(token))) {
      return false;
    }
    previous = token;
  }
  return true;
}
