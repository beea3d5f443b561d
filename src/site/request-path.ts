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
    // Not UTF-8 or not an encoding: what can be decoded is, byte by byte.
    return path.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
  }
}
