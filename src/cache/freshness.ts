import { parseHttpDate } from '../http/http-date.ts';
import type { HeaderList } from '../http/header-list.ts';
import { type CacheDirectives, splitList } from './cache-control.ts';

/** What a directive `cache` says of responses that say nothing themselves. */
export interface FreshnessRules {
  /** How long a response is fresh that names no time; null: it is not kept. */
  readonly ttlMs: number | null;
  /** How long a stale response may be used while it is asked for again, or where that fails. */
  readonly staleMs: number;
}

/** How long a response is fresh, and what is allowed after that. */
export interface Freshness {
  readonly lifetimeMs: number;
  /** The response itself names the time. */
  readonly isExplicit: boolean;
  /** How long it may be used while a newer one is asked for (RFC 5861 §3). */
  readonly whileRevalidateMs: number;
  /** How long it may be used where the app fails (RFC 5861 §4). */
  readonly ifErrorMs: number;
}

/**
 * Statuses for which a cache may make a time up (RFC 9110 §15.1), but for 206, and but for refusals of a
 * request: by a field that the app refuses, somebody could take the page from all others.
 */
const HEURISTIC = new Set([200, 203, 204, 300, 301, 308, 404, 410]);

/**
 * RFC 9111 §4.2.1: `s-maxage`, `max-age`, `Expires`, and only then what the operator says.
 *
 * @param isTargeted the directives are of a field for caches like this, so `Expires` is not for it
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

/** RFC 9111 §5.3: what is not a date has expired; so has what was sent twice. */
function expiresAfter(headers: HeaderList, nowMs: number): number | null {
  const fields = headers.getAll('expires');
  if (fields.length === 0) return null;
  const expires = fields.length === 1 ? parseHttpDate(fields[0] ?? '', nowMs) : null;
  return expires === null ? 0 : Math.max(0, expires - dateOf(headers, nowMs));
}

/** RFC 9111 §4.2.4: what must be revalidated is not used stale, unless the response says how long it may. */
function staleWindow(
  name: string,
  directives: CacheDirectives,
  { staleMs }: FreshnessRules,
): number {
  const forbidden = ['must-revalidate', 'proxy-revalidate', 'no-cache'];
  if (forbidden.some((one) => directives.has(one))) return 0;
  const seconds = directives.seconds(name);
  if (seconds !== null) return seconds * 1000;
  // RFC 9111 §5.2.2.10: s-maxage alone means proxy-revalidate too.
  return directives.has('s-maxage') ? 0 : staleMs;
}

/** When the app made it; one without a date was made when it came (RFC 9110 §6.6.1). */
function dateOf(headers: HeaderList, receivedMs: number): number {
  return parseHttpDate(headers.get('date') ?? '', receivedMs) ?? receivedMs;
}

/** RFC 9111 §4.2.3: how old a response was when it came, in milliseconds. */
export function initialAge(headers: HeaderList, requestMs: number, responseMs: number): number {
  const apparentMs = Math.max(0, responseMs - dateOf(headers, responseMs));
  const correctedMs = ageField(headers) * 1000 + (responseMs - requestMs);
  return Math.max(apparentMs, correctedMs);
}

/** RFC 9111 §5.1: the first value counts, and one that is not a number counts nothing. Seconds. */
function ageField(headers: HeaderList): number {
  const [first = ''] = splitList(headers.combined('age') ?? '');
  return /^\d+$/.test(first) ? Number(first) : 0;
}
