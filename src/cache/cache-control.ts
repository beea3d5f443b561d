import type { HeaderList } from '../http/header-list.ts';
import { parseMembers } from '../http/structured-field.ts';

/** Directives of a field that are looked at. */
const MAX_DIRECTIVES = 64;
/** RFC 9111 §1.2.2: a longer time than this is this. */
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
   * The time that a directive gives, in seconds; null where it is absent. Of several the shortest
   * holds, and one that nobody can read makes a response stale (RFC 9111 §4.2.1).
   */
  seconds(name: string): number | null {
    const values = this.#values.get(name);
    if (values === undefined) return null;
    return Math.min(...values.map(deltaSeconds));
  }

  /** The fields that `no-cache` or `private` names; `all` where it names none; null where it is absent. */
  fields(name: string): readonly string[] | 'all' | null {
    const values = this.#values.get(name);
    if (values === undefined) return null;
    if (values.some((value) => value === null || value === '')) return 'all';
    return values.flatMap((value) =>
      (value ?? '').split(',').map((one) => one.trim().toLowerCase()),
    );
  }
}

/** RFC 9111 §1.2.2: digits alone; the suite of caches shows what else is sent. */
function deltaSeconds(value: string | null): number {
  if (value === null || !/^\d+$/.test(value)) return 0;
  return Math.min(Number(value), MAX_SECONDS);
}

/** RFC 9111 §5.2. A directive that is not written as one is left out; commas in quotes divide nothing. */
export function parseCacheControl(field: string | undefined): CacheDirectives {
  const values = new Map<string, (string | null)[]>();
  for (const part of splitList(field ?? '').slice(0, MAX_DIRECTIVES)) {
    const [, name, quoted, plain] = DIRECTIVE.exec(part) ?? [];
    if (name === undefined) continue;
    add(values, name.toLowerCase(), quoted?.replace(/\\(.)/g, '$1') ?? plain ?? null);
  }
  return new CacheDirectives(values);
}

/** The fields that only caches of this kind obey, and that nobody behind them is told. */
export const TARGETED_FIELDS: readonly string[] = ['cdn-cache-control', 'surrogate-control'];

/**
 * What a response says to shared caches that stand before its server (RFC 9213 §2.2): with it,
 * `Cache-Control` and `Expires` mean nothing here. null where it says nothing that can be read.
 */
export function targetedDirectives(headers: HeaderList): CacheDirectives | null {
  return dictionary(headers.combined('cdn-cache-control')) ?? surrogate(headers);
}

/** RFC 9213 §2.1: a Dictionary; one that is not is as if it were absent. */
function dictionary(field: string | undefined): CacheDirectives | null {
  if (field === undefined) return null;
  try {
    const values = new Map<string, (string | null)[]>();
    for (const { key, items } of parseMembers(field.toLowerCase(), MAX_DIRECTIVES)) {
      const [item] = items;
      if (item === undefined || items.length !== 1) continue;
      if (key === null) {
        if (item.kind === 'token') add(values, item.value, null);
      } else if (item.kind === 'number') add(values, key, String(item.value));
      else if (item.kind === 'string' && /^(?:no-cache|private)$/.test(key)) {
        add(values, key, item.value);
      } else if (item.kind === 'boolean' && item.value) add(values, key, null);
    }
    return values.size === 0 ? null : new CacheDirectives(values);
  } catch {
    return null;
  }
}

/** The older field of the Edge Architecture; what it says of other things than storing is not for caches. */
function surrogate(headers: HeaderList): CacheDirectives | null {
  if (!headers.has('surrogate-control')) return null;
  const directives = parseCacheControl(headers.combined('surrogate-control'));
  return directives.has('max-age') || directives.has('no-store') ? directives : null;
}

function add(values: Map<string, (string | null)[]>, name: string, value: string | null): void {
  const known = values.get(name);
  if (known === undefined) values.set(name, [value]);
  else known.push(value);
}

/** The members of a list (RFC 9110 §5.6.1), trimmed, without empty ones. */
export function splitList(field: string): string[] {
  const members = field.includes('"')
    ? (field.match(/(?:"(?:[^"\\]|\\.)*"|[^",])+/g) ?? [])
    : field.split(',');
  return members.map((member) => member.trim()).filter((member) => member !== '');
}
