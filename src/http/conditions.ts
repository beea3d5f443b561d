import type { Exchange } from './exchange.ts';
import { parseHttpDate } from './http-date.ts';

/** The properties of a representation that the conditions of a request refer to. */
export interface Validators {
  /** With its quotes, and with `W/` if it is weak; null: it has none. */
  readonly etag: string | null;
  /** null: unknown. */
  readonly modifiedMs: number | null;
}

/** Positions of the first and the last byte. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * The status that results from the conditions of a request, in the order of RFC 9110 §13.2.2; null if there
 * is none.
 */
export function evaluateConditions(
  { headers }: Pick<Exchange, 'headers'>,
  { etag, modifiedMs }: Validators,
): 304 | 412 | null {
  const match = headers.combined('if-match');
  const unmodifiedSince = dateOf(headers.get('if-unmodified-since'));
  if (match !== undefined) {
    if (!listsTag(match, etag, 'strong')) return 412;
  } else if (
    unmodifiedSince !== null &&
    modifiedMs !== null &&
    seconds(modifiedMs) > unmodifiedSince
  ) {
    return 412;
  }
  const noneMatch = headers.combined('if-none-match');
  if (noneMatch !== undefined) return listsTag(noneMatch, etag, 'weak') ? 304 : null;
  const modifiedSince = dateOf(headers.get('if-modified-since'));
  if (modifiedMs === null) return null;
  return modifiedSince !== null && seconds(modifiedMs) <= modifiedSince ? 304 : null;
}

/**
 * The one range that a request asks for (RFC 9110 §14.2); null for the whole content: if there is no range,
 * several, another unit, or one of an outdated version (`If-Range`), and for empty content, of which no part can
 * be named: a client that sends a range with every request gets its 200.
 */
export function requestedRange(
  { headers, method }: Pick<Exchange, 'headers' | 'method'>,
  { etag, modifiedMs }: Validators,
  size: number,
): ByteRange | 'unsatisfiable' | null {
  const [, first = '', last = ''] =
    /^bytes=\s*(\d{0,15})-(\d{0,15})\s*$/i.exec(headers.get('range') ?? '') ?? [];
  if (method !== 'GET' || size === 0 || (first === '' && last === '')) return null;
  const condition = headers.get('if-range');
  if (condition !== undefined && (condition !== etag || condition.startsWith('W/'))) {
    if (modifiedMs === null || dateOf(condition) !== seconds(modifiedMs)) return null;
  }
  if (first === '') {
    const length = Math.min(Number(last), size);
    return length === 0 ? 'unsatisfiable' : { start: size - length, end: size - 1 };
  }
  const start = Number(first);
  const end = last === '' ? size - 1 : Math.min(Number(last), size - 1);
  if (last !== '' && Number(last) < start) return null;
  return start >= size ? 'unsatisfiable' : { start, end };
}

/** The entity tags of a field, as they are written. */
export function tagsIn(field: string): readonly string[] {
  return field.match(/(?:W\/)?"[^"]*"/g) ?? [];
}

/** Whether a list of entity tags contains this one (RFC 9110 §8.8.3.2). */
function listsTag(field: string, etag: string | null, comparison: 'strong' | 'weak'): boolean {
  if (field.trim() === '*') return true;
  if (etag === null) return false;
  if (comparison === 'strong') return !etag.startsWith('W/') && tagsIn(field).includes(etag);
  const opaque = (tag: string): string => tag.replace(/^W\//, '');
  return tagsIn(field).map(opaque).includes(opaque(etag));
}

/** Seconds of an HTTP date; null for an invalid date, which is ignored. */
function dateOf(field: string | undefined): number | null {
  const ms = field === undefined ? null : parseHttpDate(field);
  return ms === null ? null : seconds(ms);
}

/** HTTP dates have no fractions. */
function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}
