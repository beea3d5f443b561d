import { parseHttpDate } from '../http/conditions.ts';
import type { HeaderList } from '../http/header-list.ts';
import { type CacheDirectives, splitList } from './cache-control.ts';

/** The settings of `cache` for responses without directives of their own. */
export interface FreshnessRules {
  /** How long a response without a time is fresh; null: it is not stored. */
  readonly ttlMs: number | null;
  /** How long a stale response can be used while it is revalidated, or if that fails. */
  readonly staleMs: number;
}

/** How long a response is fresh, and how it can be used after that. */
export interface Freshness {
  readonly lifetimeMs: number;
  /** Whether the response itself has a time. */
  readonly isExplicit: boolean;
  /** How long it can be used while it is revalidated (RFC 5861 §3). */
  readonly whileRevalidateMs: number;
  /** How long it can be used if the app fails (RFC 5861 §4). */
  readonly ifErrorMs: number;
}

/**
 * Statuses for which a cache may choose a time (RFC 9110 §15.1), except for 206 and for statuses that reject
 * a request: a client could send a field that the app rejects, and so take the page from all others.
 */
const HEURISTIC = new Set([200, 203, 204, 300, 301, 308, 404, 410]);

/**
 * RFC 9111 §4.2.1: `s-maxage`, `max-age`, `Expires`, and then the setting of the operator.
 *
 * @param isTargeted the directives are from a field for caches like this one, so `Expires` does not apply
 */
export function freshnessOf(
  status: number,
  headers: HeaderList,
  directives: CacheDirectives,
  isTargeted: boolean,
  rules: FreshnessRules,
  nowMs: number,
): Freshness {
  const seconds = directives.seconds('s-maxage') ?? directives.seconds('max-age');
  const namedMs =
    seconds !== null ? seconds * 1000 : isTargeted ? null : expiresAfter(headers, nowMs);
  const ownMs = HEURISTIC.has(status) && !directives.has('no-cache') ? rules.ttlMs : null;
  return {
    lifetimeMs: namedMs ?? ownMs ?? 0,
    isExplicit: namedMs !== null,
    whileRevalidateMs: staleWindow('stale-while-revalidate', directives, rules),
    ifErrorMs: staleWindow('stale-if-error', directives, rules),
  };
}

/** RFC 9111 §5.3: an invalid date has expired, and so has a field that was sent twice. */
function expiresAfter(headers: HeaderList, nowMs: number): number | null {
  const fields = headers.getAll('expires');
  if (fields.length === 0) return null;
  const expires = fields.length === 1 ? parseHttpDate(fields[0] ?? '', nowMs) : null;
  return expires === null ? 0 : Math.max(0, expires - dateOf(headers, nowMs));
}

/**
 * RFC 9111 §4.2.4: a response that must be revalidated is not used stale, unless it says for how long it may
 * be.
 */
function staleWindow(
  name: string,
  directives: CacheDirectives,
  { staleMs }: FreshnessRules,
): number {
  const forbidden = ['must-revalidate', 'proxy-revalidate', 'no-cache'];
  if (forbidden.some((one) => directives.has(one))) return 0;
  const seconds = directives.seconds(name);
  if (seconds !== null) return seconds * 1000;
  // RFC 9111 §5.2.2.10: s-maxage implies proxy-revalidate.
  return directives.has('s-maxage') ? 0 : staleMs;
}

/** When the app created it; without a date, when it arrived (RFC 9110 §6.6.1). */
function dateOf(headers: HeaderList, receivedMs: number): number {
  return parseHttpDate(headers.get('date') ?? '', receivedMs) ?? receivedMs;
}

/** RFC 9111 §4.2.3: the age of a response at its arrival, in milliseconds. */
export function initialAge(headers: HeaderList, requestMs: number, responseMs: number): number {
  const apparentMs = Math.max(0, responseMs - dateOf(headers, responseMs));
  const correctedMs = ageField(headers) * 1000 + (responseMs - requestMs);
  return Math.max(apparentMs, correctedMs);
}

/** RFC 9111 §5.1: the first value applies, and one that is not a number is ignored. In seconds. */
function ageField(headers: HeaderList): number {
  const [first = ''] = splitList(headers.combined('age') ?? '');
  return /^\d+$/.test(first) ? Number(first) : 0;
}
