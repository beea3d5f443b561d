import type { Exchange } from '../http/exchange.ts';
import { pathOf } from './placeholders.ts';

/**
 * The path as matchers see it: decoded, with `//`, `.` and `..` resolved. An upstream may resolve
 * them as well, so `/open/../admin` and `/%61dmin` must count as `/admin`.
 */
export function matchedPath(exchange: Exchange): string {
  const decoded = decodePath(pathOf(exchange));
  if (!/\/(?:\/|\.)/.test(decoded)) return decoded;
  const parts: string[] = [];
  const all = decoded.split('/');
  for (const part of all) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  const last = all.at(-1);
  const slash = parts.length > 0 && (last === '' || last === '.' || last === '..') ? '/' : '';
  return `/${parts.join('/')}${slash}`;
}

/** A path without percent-encoding, as far as it has one that can be read. */
export function decodePath(path: string): string {
  if (!path.includes('%')) return path;
  try {
    return decodeURIComponent(path);
  } catch {
    return decodedByBytes(path);
  }
}

/** Not UTF-8 or not an encoding: what can be decoded is, byte by byte. */
function decodedByBytes(path: string): string {
  const parts = path.split('%');
  return parts
    .map((part, index) => {
      if (index === 0) return part;
      const byte = ESCAPED.get(part.slice(0, 2));
      return byte === undefined ? `%${part}` : byte + part.slice(2);
    })
    .join('');
}

const DIGITS = Array.from('0123456789ABCDEFabcdef');

/** What two hexadecimal digits stand for, in capitals or not. */
const ESCAPED: ReadonlyMap<string, string> = new Map(
  DIGITS.flatMap((high) =>
    DIGITS.map((low) => {
      const hex = high + low;
      return [hex, String.fromCharCode(Number.parseInt(hex, 16))] as const;
    }),
  ),
);
