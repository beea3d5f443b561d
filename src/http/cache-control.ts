import { addToList } from '../kernel/collections.ts';
import type { HeaderList } from './header-list.ts';
import { parseMembers } from './structured-field.ts';
import { parseHttpDate } from './http-date.ts';

/** Maximum number of directives of a field that are read. */
const MAX_DIRECTIVES = 64;
/** RFC 9111 §1.2.2: longer times are limited to this. */
const MAX_SECONDS = 2_147_483_648;

const TOKEN = String.raw`[!#$%&'*+.^_\x60|~0-9A-Za-z-]+`;
const DIRECTIVE = new RegExp(String.raw`^(${TOKEN})(?:=(?:"((?:[^"\\]|\\.)*)"|([^\s",]*)))?$`);

/** The directives of `Cache-Control`, or of a field with the same directives. */
export class CacheDirectives {
  /** By lower-case name; null for one without a value. */
  readonly #values: ReadonlyMap<string, readonly (string | null)[]>;

  constructor(values: ReadonlyMap<string, readonly (string | null)[]>) {
    this.#values = values;
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  /**
   * The time of a directive in seconds; null if it is absent. Among several the shortest applies, and an
   * invalid one makes a response stale (RFC 9111 §4.2.1).
   */
  seconds(name: string): number | null {
    const values = this.#values.get(name);
    if (values === undefined) return null;
    return Math.min(...values.map(deltaSeconds));
  }

  /** The fields of `no-cache` or `private`; `all` if it names none; null if it is absent. */
  fields(name: string): readonly string[] | 'all' | null {
    const values = this.#values.get(name);
    if (values === undefined) return null;
    if (values.some((value) => value === null || value === '')) return 'all';
    return values.flatMap((value) =>
      (value ?? '').split(',').map((one) => one.trim().toLowerCase()),
    );
  }
}

/** RFC 9111 §1.2.2: only digits. The suite of caches shows what else is sent. */
function deltaSeconds(value: string | null): number {
  if (value === null || !/^\d+$/.test(value)) return 0;
  return Math.min(Number(value), MAX_SECONDS);
}

/** Directives that forbid something or limit a time. They count also where their syntax is invalid. */
const RESTRICTIONS =
  /(?<![\w-])(?:no-store|no-cache|private|s-maxage|max-age|must-revalidate|proxy-revalidate)(?![\w-])/g;

/**
 * RFC 9111 §5.2; commas in quotes separate nothing. An invalid member permits nothing, and its restrictions apply:
 * `max-age=60 private` is private, and has expired. More members than {@link MAX_DIRECTIVES} forbid to store.
 */
export function parseCacheControl(field: string | undefined): CacheDirectives {
  const values = new Map<string, (string | null)[]>();
  const members = splitList(field ?? '');
  if (members.length > MAX_DIRECTIVES) addToList(values, 'no-store', null);
  for (const member of members.slice(0, MAX_DIRECTIVES)) {
    const [, name, quoted, plain] = DIRECTIVE.exec(member) ?? [];
    if (name !== undefined) {
      addToList(values, name.toLowerCase(), quoted?.replace(/\\(.)/g, '$1') ?? plain ?? null);
      continue;
    }
    for (const [restriction] of member.toLowerCase().matchAll(RESTRICTIONS)) {
      addToList(values, restriction, null);
    }
  }
  return new CacheDirectives(values);
}

/** Fields for caches of this kind only, which are not passed on. */
export const TARGETED_FIELDS: readonly string[] = ['cdn-cache-control', 'surrogate-control'];

/**
 * The directives for shared caches in front of the origin server (RFC 9213 §2.2). If there are any,
 * `Cache-Control` and `Expires` do not apply here. null if there are none, or if they are invalid.
 */
export function targetedDirectives(headers: HeaderList): CacheDirectives | null {
  return dictionary(headers.combined('cdn-cache-control')) ?? surrogate(headers);
}

/** RFC 9213 §2.1: a Dictionary; an invalid one counts as absent. */
function dictionary(field: string | undefined): CacheDirectives | null {
  if (field === undefined) return null;
  try {
    const values = new Map<string, (string | null)[]>();
    for (const { key, items } of parseMembers(field.toLowerCase(), MAX_DIRECTIVES)) {
      const [item] = items;
      if (item === undefined || items.length !== 1) continue;
      if (key === null) {
        if (item.kind === 'token') addToList(values, item.value, null);
      } else if (item.kind === 'number') addToList(values, key, String(item.value));
      else if (item.kind === 'string' && /^(?:no-cache|private)$/.test(key)) {
        addToList(values, key, item.value);
      } else if (item.kind === 'boolean' && item.value) addToList(values, key, null);
    }
    return values.size === 0 ? null : new CacheDirectives(values);
  } catch {
    return null;
  }
}

/**
 * The older field of the Edge Architecture. Its directives about other things than storing do not concern
 * caches.
 */
function surrogate(headers: HeaderList): CacheDirectives | null {
  if (!headers.has('surrogate-control')) return null;
  const directives = parseCacheControl(headers.combined('surrogate-control'));
  return directives.has('max-age') || directives.has('no-store') ? directives : null;
}

/**
 * The members of a list (RFC 9110 §5.6.1), trimmed and without empty ones. A quote that is not closed separates
 * members as a comma does, so that `private="x` counts as `private`.
 */
export function splitList(field: string): string[] {
  const members = field.includes('"') ? splitOutsideQuotes(field) : field.split(',');
  return members.map((member) => member.trim()).filter((member) => member !== '');
}

/** In one pass: a client chooses the field, and a pattern would begin again at each quote. */
function splitOutsideQuotes(field: string): string[] {
  const members: string[] = [];
  let start = 0;
  let isQuoted = false;
  for (let at = 0; at < field.length; at += 1) {
    const character = field[at];
    if (character === '"') isQuoted = !isQuoted;
    else if (character === '\\' && isQuoted) at += 1;
    else if (character === ',' && !isQuoted) {
      members.push(field.slice(start, at));
      start = at + 1;
    }
  }
  const last = field.slice(start);
  return isQuoted ? [...members, ...last.split(/[",]/)] : [...members, last];
}

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
  const namedMs = maxAgeMs(directives) ?? (isTargeted ? null : expiresAfter(headers, nowMs));
  const ownMs = HEURISTIC.has(status) && !directives.has('no-cache') ? rules.ttlMs : null;
  return {
    lifetimeMs: namedMs ?? ownMs ?? 0,
    isExplicit: namedMs !== null,
    whileRevalidateMs: staleWindow('stale-while-revalidate', directives, rules),
    ifErrorMs: staleWindow('stale-if-error', directives, rules),
  };
}

/** RFC 9111 §5.2.2.10: for shared caches, `s-maxage` overrides `max-age`; null if there is neither. */
export function maxAgeMs(directives: CacheDirectives): number | null {
  const seconds = directives.seconds('s-maxage') ?? directives.seconds('max-age');
  return seconds === null ? null : seconds * 1000;
}

/** RFC 9111 §5.3: an invalid date has expired, and so has a field that was sent twice. */
export function expiresAfter(headers: HeaderList, nowMs: number): number | null {
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

/**
 * RFC 9111 §4.2.3: the age of a response at its arrival at `receivedMs`, `delayMs` after its request, in milliseconds.
 */
export function initialAge(headers: HeaderList, receivedMs: number, delayMs: number): number {
  const apparentMs = Math.max(0, receivedMs - dateOf(headers, receivedMs));
  const correctedMs = ageField(headers) * 1000 + delayMs;
  return Math.max(apparentMs, correctedMs);
}

/** RFC 9111 §5.1: the first value applies, and one that is not a number is ignored. In seconds. */
function ageField(headers: HeaderList): number {
  const [first = ''] = splitList(headers.combined('age') ?? '');
  return /^\d+$/.test(first) ? Number(first) : 0;
}

/**
 * Fields that take precedence over `Cache-Control` in some shared caches, in addition to the targeted fields
 * of RFC 9213.
 */
const OVERRIDES = new Set([
  'surrogate-control',
  'edge-control',
  'x-accel-expires',
  'x-litespeed-cache-control',
]);

/**
 * Keeps a response with a user's token out of shared caches (RFC 9111 §3.5, §5.2.2). Unless it already has
 * `private` or `no-store`, it gets `private` and loses everything that permits sharing.
 */
export function makePrivate(headers: HeaderList): void {
  headers.deleteWhere((key) => OVERRIDES.has(key) || key.endsWith('cdn-cache-control'));
  if (isPrivate(headers)) return;
  const kept = directiveTexts(headers).filter(
    (directive) => !['public', 's-maxage', 'private'].includes(nameOf(directive)),
  );
  headers.set('cache-control', ['private', ...kept].join(', '));
}

/** Whether shared caches must not store the response. `private="field"` protects only that field. */
export function isPrivate(headers: HeaderList): boolean {
  return directiveTexts(headers).some((directive) => /^(?:private|no-store)$/i.test(directive));
}

function directiveTexts(headers: HeaderList): string[] {
  return splitList(headers.combined('cache-control') ?? '');
}

function nameOf(directive: string): string {
  return directive.toLowerCase().split('=', 1)[0]?.trim() ?? '';
}
